"""Plan files: the JSON form of a plan, sealed by a digest, and the places of what is wrong in it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from . import files
from .certificate import Certificate
from .diagnostic import Report
from .errors import InputError
from .instruction import Reader, Stream
from .operation import Step
from .placement import Placement
from .places import Places
from .problem import Problem
from .profile import Profile
from .recomputation import Recompute

FORMAT = "debubble.plan/1"
T = TypeVar("T")


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a plan file. Steps and instructions are written as text: `2F0`, `send 2F0 >3`."""

    format: str = FORMAT
    tool: str
    profile: Profile
    placement: Placement
    microbatches: int
    memory_cap: tuple[float | None, ...]
    objective: str
    backward: str
    recompute: Recompute | msgspec.UnsetType = msgspec.UNSET  # left out where nothing is recomputed
    method: str
    orders: tuple[str, ...]
    streams: tuple[tuple[str, ...], ...]
    makespan: float
    span: float
    peak_memory: tuple[float, ...]
    certificate: Certificate
    warnings: tuple[str, ...] = ()
    digest: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PlanFile:
        """Read a plan file. Raises InputError when it is none."""
        try:
            return files.read_json(path, cls, FORMAT)
        except InputError as error:
            if error.code == "malformed-json" and files.read_bytes(path).lstrip()[:1] != b"{":
                message, hint = "not a plan", "debubble lower makes a plan of a schedule"
                raise InputError(message, code="wrong-format", source=error.source, hint=hint) from None
            raise

    def sealed(self) -> PlanFile:
        """The same content, as it reads back, with its digest."""
        bare = msgspec.json.decode(msgspec.json.encode(self), type=PlanFile)
        return msgspec.structs.replace(bare, digest=bare.seal())

    def seal(self) -> str:
        """SHA-256 over what is read, but for the digest: how numbers, blanks and defaults are written makes no
        difference."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, digest=""))).hexdigest()

    def text(self) -> str:
        """JSON with one line per order and per stream."""
        encoded = msgspec.json.decode(msgspec.json.encode(self))
        return "{\n" + ",\n".join(f"  {_json(key)}: {_top_level(value)}" for key, value in encoded.items()) + "\n}\n"

    def problem(self) -> Problem:
        """The problem that the plan solves. Raises InputError when there is no such problem."""
        return Problem(
            self.profile,
            self.placement,
            self.microbatches,
            tuple(math.inf if cap is None else cap for cap in self.memory_cap),
            self.objective,
            self.backward,
            "none" if self.recompute is msgspec.UNSET else self.recompute,
        )

    def programs(self, places: PlanPlaces) -> tuple[tuple[tuple[Step, ...], ...], tuple[Stream, ...]]:
        """The orders and the streams. Raises InputError, with its place, for what is no step or no instruction."""
        reader = Reader()
        orders = tuple(_parsed((order.split() for order in self.orders), reader.step, places.step))
        return orders, tuple(_parsed(self.streams, reader.instruction, places.instruction))


class PlanPlaces(Places):
    """The places in a plan file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(partial(files.read_text, path))

    def step(self, device: int, index: int | None) -> dict[str, int]:
        return self.of("orders", device, word=index)

    def instruction(self, device: int, index: int | None) -> dict[str, int]:
        return self.of("streams", device, *(() if index is None else (index,)))


def located(report: Report, place: Callable[[int, int | None], dict[str, int]]) -> Report:
    """The same report with the line and column of every finding that names a device."""

    def there(found: list) -> list:
        return [each if each.device is None else replace(each, **place(each.device, each.index)) for each in found]

    return Report(there(report.errors), there(report.warnings), report.counts)


def _parsed(
    texts: Iterable[Iterable[str]], parse: Callable[[str], T], place: Callable[[int, int], dict[str, int]]
) -> Iterator[tuple[T, ...]]:
    for device, words in enumerate(texts):
        found: list[T] = []
        try:
            for word in words:
                found.append(parse(word))  # noqa: PERF401 (how far it comes is the place of the error)
        except ValueError as error:
            message = f"device {device}, entry {len(found)}: {error}"
            at = place(device, len(found))
            raise InputError(message, code="bad-token", line=at.get("line"), column=at.get("column")) from None
        yield tuple(found)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _top_level(value: Any) -> str:
    """Lists of lists, and lists of long strings, one item a line; everything else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], list | str):
        return "[\n" + ",\n".join(f"    {_json(item)}" for item in value) + "\n  ]"
    return _json(value)
