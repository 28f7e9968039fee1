"""Traffic: instruction streams as arrays with one row per instruction, for checks that must be fast on millions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from .diagnostic import MAX_OF_A_KIND, Report
from .instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait
from .operation import Operation
from .problem import Problem
from .table import NUMBER, Rows, column, columns, taken_apart

_COLUMNS = ("device", "index", "verb", "kind", "stage", "microbatch", "peer", "slot", "group")
VERBS = {verb: number for number, verb in enumerate((Compute, Send, Receive, Wait, Reduce))}


@dataclass(frozen=True)
class Traffic:
    """One row per instruction, device by device; an overlapped pair has a row for each of its two operations.

    `stage` and `microbatch` are those of the operation or of the value; columns that an instruction has no use for
    hold -1. Of two rows of one device, the smaller one comes first.
    """

    problem: Problem
    streams: Sequence[Stream]
    spell: Callable[[Instruction], str]
    device: Rows
    index: Rows
    verb: Rows
    kind: Rows
    stage: Rows
    microbatch: Rows
    peer: Rows
    slot: Rows
    group: Rows

    @classmethod
    def of(cls, problem: Problem, streams: Sequence[Stream], spell: Callable[[Instruction], str]) -> Traffic:
        """The table of streams; `spell` writes an instruction the way its reader knows it."""
        lengths = list(map(len, streams))
        flat = list(chain.from_iterable(streams))
        verb = np.fromiter(map(VERBS.__getitem__, map(type, flat)), np.int8, len(flat))
        members: dict[type, list] = {kind: [] for kind in VERBS}
        for instruction in flat:
            members[type(instruction)].append(instruction)
        operations, step = taken_apart([compute.step for compute in members[Compute]])
        widths = np.ones(len(flat), np.int64)
        widths[verb == VERBS[Compute]] = np.bincount(step, minlength=len(members[Compute]))
        origin = np.repeat(np.arange(len(flat)), widths)
        device = np.repeat(np.arange(len(streams)), lengths)[origin]
        index = origin - np.cumsum([0, *lengths])[device]
        verb = verb[origin]
        kind, stage, microbatch, peer, slot, group = (np.full(len(verb), -1, dtype) for dtype in [np.int8] + 5 * [int])
        for named in (Compute, Send, Receive, Wait):
            rows = verb == VERBS[named]
            values = operations if named is Compute else [instruction.value for instruction in members[named]]
            kind[rows], stage[rows], microbatch[rows] = columns(values)
        for transfer in (Send, Receive):
            rows, found = verb == VERBS[transfer], members[transfer]
            peer[rows] = column(found, 1)
            group[rows] = np.fromiter((-1 if each.group is None else each.group for each in found), int, len(found))
        slot[verb == VERBS[Receive]] = column(members[Receive], 2)
        rows = verb == VERBS[Reduce]
        stage[rows], peer[rows] = column(members[Reduce], 0), column(members[Reduce], 1)
        return cls(problem, streams, spell, device, index, verb, kind, stage, microbatch, peer, slot, group)

    def without(self, rows: Rows) -> Traffic:
        """The same table but for some rows."""
        kept: dict[str, Any] = {name: np.delete(getattr(self, name), rows) for name in _COLUMNS}
        return replace(self, **kept)

    def rows(self, verb: type, *kinds: str) -> Rows:
        """The rows of one kind of instruction, and of some kinds of operations only, in order."""
        selected = self.verb == VERBS[verb]
        if kinds:
            selected &= np.isin(self.kind, [NUMBER[kind] for kind in kinds])
        return np.flatnonzero(selected)

    @cached_property
    def values(self) -> Rows:
        """The number of each row's value; without meaning where it has none."""
        return self.number(self.kind != NUMBER["F"], self.stage, self.microbatch)

    def number(self, gradient: Rows | bool, stage: Rows, microbatch: Rows) -> Rows:
        """A number for the activation, or the gradient, that a stage makes of a micro-batch."""
        return (stage + gradient * self.problem.stages) * self.problem.microbatches + microbatch

    @cached_property
    def channels(self) -> tuple[Rows, Rows, Rows, Rows]:
        """The rows of sends and of receives, channel by channel and in order, and the channel of each.

        A channel is an ordered device pair, numbered source x devices + target.
        """
        sends, receives = self.rows(Send), self.rows(Receive)
        sent = self.device[sends] * self.problem.devices + self.peer[sends]
        received = self.peer[receives] * self.problem.devices + self.device[receives]
        out, into = np.argsort(sent, kind="stable"), np.argsort(received, kind="stable")
        return sends[out], receives[into], sent[out], received[into]

    def ends_of_groups(self, rows: Rows) -> Rows:
        """The last row of the group that each row belongs to; a row outside of groups is its own."""
        following = np.append(self.group[1:], -1)
        last = np.flatnonzero(
            (self.group < 0) | (following != self.group) | (np.append(self.device[1:], -1) != self.device)
        )
        return last[np.searchsorted(last, rows)]

    def instruction(self, row: int) -> Instruction:
        return self.streams[self.device[row]][self.index[row]]

    def spelled(self, row: int) -> str:
        return self.spell(self.instruction(row))

    def value(self, row: int) -> Operation:
        """The value that a row makes or moves; a gradient is named by its B."""
        kind = "F" if self.kind[row] == NUMBER["F"] else "B"
        return Operation(kind, int(self.stage[row]), int(self.microbatch[row]))

    def report(self, report: Report, code: str, rows: Rows, message: str | Callable[[int], str]) -> None:
        """One error per row, which names its instruction; beyond the first of a kind they are only counted."""
        for row in map(int, rows[:MAX_OF_A_KIND]):
            name = self.spelled(row)
            place = {"device": int(self.device[row]), "index": int(self.index[row])}
            text = message if isinstance(message, str) else message(row)
            report.error(code, f"{name}: {text}", operation=name, **place)
        report.count(code, len(rows[MAX_OF_A_KIND:]))


class First:
    """The first row that has a key, for every key. Keys are columns of small numbers."""

    def __init__(self, keys: tuple[Rows, ...], rows: Rows) -> None:
        self._shape = tuple(int(column.max(initial=0)) + 1 for column in keys)
        self._keys, first = np.unique(np.ravel_multi_index(keys, self._shape), return_index=True)
        self._rows = rows[first]

    def of(self, keys: tuple[Rows, ...]) -> Rows:
        """By key, its first row; NEVER where there is none."""
        if not len(self._keys):
            return np.full(len(keys[0]), NEVER)
        known = np.all(
            [(column >= 0) & (column < size) for column, size in zip(keys, self._shape, strict=True)], axis=0
        )
        number = np.ravel_multi_index(keys, self._shape, mode="clip")
        place = np.minimum(np.searchsorted(self._keys, number), len(self._keys) - 1)
        return np.where(known & (self._keys[place] == number), self._rows[place], NEVER)


NEVER = np.iinfo(np.int64).max
"""A row that no table has: later than every row."""
