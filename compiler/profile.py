"""Profiles: what each stage and each link costs, in time and in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import msgspec

from . import files
from .errors import InputError
from .numbers import check_count, check_real

FORMAT = "debubble.profile/1"

LARGEST = 1e18
"""Larger numbers are refused: sums and ratios of them would overflow."""

MAX_STAGES = 2**16


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed changes of the memory held on a device, which sum to 0.

    Increases count from the start of the operation, decreases from its end.
    """

    forward: float = 1.0
    backward_input: float = 0.0
    backward_weight: float = -1.0

    @property
    def backward(self) -> float:
        """The change at a fused backward."""
        return self.backward_input + self.backward_weight


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far measured times vary: of each, the distance between the quartiles over the median."""

    forward: float = 0.0
    backward_input: float = 0.0
    backward_weight: float = 0.0
    backward: float = 0.0


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Costs of one stage for one micro-batch: durations in time units, memory in memory units.

    `backward` is the duration of a fused backward (default: backward_input + backward_weight), `static_memory`
    what weights, gradients and optimizer state hold, `output_bytes` the size of what it sends forward
    (and receives backward). `spread` is there where the times were measured.
    """

    forward: float
    backward_input: float
    backward_weight: float
    backward: float | None = None
    memory: Memory = Memory()
    static_memory: float = 0.0
    output_bytes: float = 0.0
    spread: Spread | msgspec.UnsetType = msgspec.UNSET

    @property
    def fused(self) -> float:
        """The duration of a fused backward."""
        return self.backward_input + self.backward_weight if self.backward is None else self.backward


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transfer takes latency + bytes / bandwidth (bytes per time unit)."""

    latency: float
    bandwidth: float


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything measured about one model cut into stages.

    `comm` is the time of one transfer between two devices: a number, a `Link`, or a matrix `[from][to]`.
    `overlapped_pair` is the duration of an overlapped pair as a ratio to its F + backward (of the forward's stage,
    when a list). `microbatches` holds one factor per micro-batch on every cost: times, memory changes and bytes.
    `machine` says in words where the times were measured.
    """

    format: str = FORMAT
    stages: tuple[Stage, ...]
    comm: float | Link | tuple[tuple[float, ...], ...] = 0.0
    memory_cap: float | tuple[float, ...] | None = None
    time_unit: str = ""
    memory_unit: str = ""
    overlapped_pair: float | tuple[float, ...] | None = None
    microbatches: tuple[float, ...] | None = None
    machine: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("stages: a profile needs at least one stage", code="bad-key")
        if len(self.stages) > MAX_STAGES:
            raise InputError(f"stages: {len(self.stages)} are more than {MAX_STAGES}", code="too-large")
        for key, value, least in self._numbers():
            check_real(key, value)
            if not math.isfinite(value) or value < least:
                kind = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
                raise InputError(f"{key}: must be {kind}, not {value}", code="bad-number")
            if abs(value) > LARGEST:
                raise InputError(f"{key}: {value:g} is too large, use another unit", code="bad-number")
        if isinstance(self.comm, Link) and self.comm.bandwidth <= 0:
            raise InputError("comm.bandwidth: must be more than 0", code="bad-number")
        if isinstance(self.comm, tuple) and any(len(row) != len(self.comm) for row in self.comm):
            raise InputError("comm: the matrix must be square, one row and one column per device", code="bad-key")
        for index, stage in enumerate(self.stages):
            self._check_memory(f"stages[{index}].memory", stage.memory)
        for key, values in (("overlapped_pair", self.overlapped_pair), ("microbatches", self.microbatches)):
            if isinstance(values, tuple) and not values:
                raise InputError(f"{key}: the list is empty", code="bad-key")
        if isinstance(self.overlapped_pair, tuple) and len(self.overlapped_pair) != len(self.stages):
            raise InputError(
                f"overlapped_pair: {len(self.overlapped_pair)} ratios for {len(self.stages)} stages", code="bad-key"
            )

    def _numbers(self) -> Iterator[tuple[str, float, float]]:
        """Every number with its key and the least value it may take."""
        for index, stage in enumerate(self.stages):
            key = f"stages[{index}]"
            for name in ("forward", "backward_input", "backward_weight", "static_memory", "output_bytes"):
                yield f"{key}.{name}", getattr(stage, name), 0
            if stage.backward is not None:
                yield f"{key}.backward", stage.backward, 0
            for name in ("forward", "backward_input", "backward_weight"):
                yield f"{key}.memory.{name}", getattr(stage.memory, name), -math.inf
            if isinstance(stage.spread, Spread):
                for name in Spread.__struct_fields__:
                    yield f"{key}.spread.{name}", getattr(stage.spread, name), 0
        if isinstance(self.comm, Link):
            yield "comm.latency", self.comm.latency, 0
            yield "comm.bandwidth", self.comm.bandwidth, 0
        elif isinstance(self.comm, tuple):
            for a, row in enumerate(self.comm):
                for b, value in enumerate(row):
                    yield f"comm[{a}][{b}]", value, 0
        else:
            yield "comm", self.comm, 0
        for name in ("memory_cap", "overlapped_pair", "microbatches"):
            value = getattr(self, name)
            if isinstance(value, tuple):
                for index, item in enumerate(value):
                    yield f"{name}[{index}]", item, 0
            elif value is not None:
                yield name, value, 0

    @staticmethod
    def _check_memory(key: str, memory: Memory) -> None:
        changes = (memory.forward, memory.backward_input, memory.backward_weight)
        slack = 1e-9 * max(map(abs, changes))
        if abs(math.fsum(changes)) > slack:
            raise InputError(
                f"{key}: the changes at F, B and W must sum to 0, but {' + '.join(f'{c:g}' for c in changes)} "
                f"= {math.fsum(changes):g}",
                code="bad-memory",
                hint="what a forward takes, its two backwards must free",
            )
        if memory.forward < -slack or memory.forward + memory.backward_input < -slack:
            raise InputError(
                f"{key}: less is held than nothing after F or after B ({memory.forward:g}, "
                f"{memory.forward + memory.backward_input:g})",
                code="bad-memory",
            )

    @classmethod
    def uniform(
        cls,
        *,
        stages: int,
        forward: float,
        backward_input: float,
        backward_weight: float,
        comm: float = 0.0,
        memory: tuple[float, float, float] = (1.0, 0.0, -1.0),
        memory_cap: float | tuple[float, ...] | None = None,
        overlapped_pair: float | None = None,
    ) -> Profile:
        """A profile of equal stages. Raises InputError when a number is out of range."""
        check_count("stages", stages, most=MAX_STAGES)
        stage = Stage(
            forward=forward, backward_input=backward_input, backward_weight=backward_weight, memory=Memory(*memory)
        )
        return cls(stages=(stage,) * stages, comm=comm, memory_cap=memory_cap, overlapped_pair=overlapped_pair)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile file. Raises InputError naming the file and the key."""
        return files.read_json(path, cls, FORMAT)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as readable JSON."""
        files.write(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
