"""Drawings: what a schedule file says, cell by cell, before anybody judges it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from ..diagnostic import MAX_OF_A_KIND, Report
from ..errors import InputError
from ..operation import Operation, Pair, Step
from ..recomputation import Recompute

MAX_BYTES = 64 * 2**20
"""Schedule files larger than this are refused."""
MAX_ENTRIES = 8_000_000
"""Files with more entries than this are refused."""
MAX_DEVICES = 2**16
_LONGEST_SHOWN = 40
_NAME = re.compile(r"\b(\d+)(BW|B)(\d+)\b", re.ASCII)
_TOO_LARGE = re.compile(r"\d{10}", re.ASCII)
"""Stages and micro-batches have at most nine digits."""


class Communication(NamedTuple):
    """A torch action beside the computations; `microbatch` is None for UNSHARD, RESHARD and REDUCE_GRAD."""

    verb: str
    stage: int
    microbatch: int | None

    def __str__(self) -> str:
        return f"{self.stage}{self.verb}{'' if self.microbatch is None else self.microbatch}"


Item: TypeAlias = Step | Communication


class Row:
    """The entries of one device, where each stands in the file, and how far they are drawn.

    A device has a line of its own, except where `lines` says otherwise. `first_cell` and `end_cell` bound the entries
    in cells, idle ones counted.
    """

    def __init__(self, line: int) -> None:
        self.line = line
        self.items: list[Item] = []
        self.columns = array("I")
        self.lines: array[int] | None = None
        self.first_cell: int | None = None
        self.end_cell = 0

    def add(self, item: Item, column: int, cell: int) -> None:
        if not self.items:
            self.first_cell = cell
        self.items.append(item)
        self.columns.append(column)
        self.end_cell = cell + 1

    def at(self, device: int, place: int) -> dict[str, int | None]:
        """Where an entry stands, for a diagnostic."""
        line = self.line if self.lines is None else self.lines[place]
        return {"device": device, "line": line, "column": self.columns[place]}

    @property
    def draws_idle(self) -> bool:
        return self.end_cell > len(self.items)


@dataclass
class Drawing:
    """A whole file: one row per device, what its comments state, and what is wrong with its letters.

    `letters` says how the file writes a kind of operation that it does not write as debubble does.
    """

    dialect: str
    letters: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    placement: str | None = None
    microbatches: int | None = None
    recompute: Recompute = "none"
    report: Report = field(default_factory=Report)
    entries: int = 0

    def spell(self, what: Item | str) -> str:
        """An entry, or every operation named in a text, in the letters of the file."""
        if not self.letters:
            return str(what)
        return _NAME.sub(lambda name: f"{name[1]}{self.letters.get(name[2], name[2])}{name[3]}", str(what))

    @cached_property
    def communicates(self) -> bool:
        """True when the file says when to send and to receive."""
        return any(
            item.microbatch is not None for row in self.rows for item in row.items if type(item) is Communication
        )

    @cached_property
    def lowered(self) -> bool:
        """True when the file holds more than computations, as torch's runtime executes it."""
        return any(type(item) is Communication for row in self.rows for item in row.items)

    @property
    def drawn_makespan(self) -> float | None:
        """The columns from the first entry to the last, where idle cells are drawn; one cell is one unit."""
        starts = [row.first_cell for row in self.rows if row.first_cell is not None]
        if not starts or not any(row.draws_idle for row in self.rows):
            return None
        return float(max(row.end_cell for row in self.rows) - min(starts))

    def bad_token(self, token: str, explain: Callable[[str], str], line: int, column: int, device: int) -> None:
        """Report an entry that cannot be understood; `explain` says why of tokens without a monstrous number."""
        if self.report.counts["bad-token"] < MAX_OF_A_KIND:
            message = f"{shown(token)}: the number is too large" if _TOO_LARGE.search(token) else explain(token)
            self.report.error("bad-token", message, device=device, line=line, column=column)
        else:
            self.report.count("bad-token", 1)

    def add(self, row: Row) -> None:
        """Append a device. Raises InputError when the file is larger than anything that could be judged."""
        self.rows.append(row)
        self.entries += len(row.items)
        if len(self.rows) > MAX_DEVICES or self.entries > MAX_ENTRIES:
            raise InputError(f"the file has more than {MAX_DEVICES} devices or {MAX_ENTRIES} entries", code="too-large")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) from 1, for line ends of any system."""
    start, number = 0, 1
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield number, text[start:end].removesuffix("\r")
        start, number = end + 1, number + 1


def make_pair(first: Operation, second: Operation) -> Pair | None:
    """The overlapped pair of a forward and a backward, in this order; None for anything else."""
    return Pair(first, second) if first.kind == "F" and second.kind in ("B", "BW") else None


def shown(token: str) -> str:
    """A token of a stranger's file, quoted, without control characters, and not too long."""
    return repr(token if len(token) <= _LONGEST_SHOWN else token[:_LONGEST_SHOWN] + "...")
