"""Tables: a schedule as arrays with one row per operation, for checks that must be fast on a million of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

import numpy as np

from .diagnostic import MAX_OF_A_KIND, Report
from .operation import KINDS, Operation, Pair, Step, parts
from .schedule import Schedule

Rows = np.ndarray
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


def taken_apart(steps: Sequence[Step]) -> tuple[Sequence[Operation], Rows]:
    """The operations of steps, those of pairs one by one, and for each the index of its step."""
    index = np.arange(len(steps))
    if Pair not in set(map(type, steps)):
        return steps, index  # type: ignore[return-value]
    operations = [operation for step in steps for operation in parts(step)]
    return operations, np.repeat(index, np.fromiter((len(parts(step)) for step in steps), np.int64, len(steps)))


def column(tuples: Iterable[tuple], place: int) -> Rows:
    """One field of many tuples of numbers."""
    return np.fromiter(map(itemgetter(place), tuples), np.int64)


def columns(operations: Sequence[Operation]) -> tuple[Rows, Rows, Rows]:
    """Kinds (as in `NUMBER`), stages and micro-batches."""
    kinds = np.fromiter(map(NUMBER.__getitem__, map(itemgetter(0), operations)), np.int8, len(operations))
    return kinds, column(operations, 1), column(operations, 2)


def needs(kind: Rows, stage: Rows, stages: int) -> Iterator[tuple[Rows, bool, int]]:
    """The rules of `simulation.inputs`: rows that need a value, whether it is a gradient, and how far its stage is."""
    forward, weight = kind == NUMBER["F"], kind == NUMBER["W"]
    backward = ~forward & ~weight
    yield np.flatnonzero(forward & (stage > 0)), False, -1
    yield np.flatnonzero(backward), False, 0
    yield np.flatnonzero(backward & (stage < stages - 1)), True, 1
    yield np.flatnonzero(weight), True, 0


@dataclass(frozen=True)
class Table:
    """One row per operation, pairs taken apart: what it is, its device, and the index of its step in the order."""

    kind: Rows
    stage: Rows
    microbatch: Rows
    device: Rows
    index: Rows

    @classmethod
    def of(cls, schedule: Schedule) -> Table:
        operations, step = taken_apart(list(chain.from_iterable(schedule.orders)))
        lengths = list(map(len, schedule.orders))
        device = np.repeat(np.arange(schedule.devices), lengths)[step]
        first = np.cumsum([0, *lengths])[:-1]
        return cls(*columns(operations), device, step - first[device])

    def operation(self, row: int) -> Operation:
        return Operation(KINDS[self.kind[row]], int(self.stage[row]), int(self.microbatch[row]))

    def report(self, report: Report, code: str, rows: Rows, message: Callable[[Operation, int], str]) -> None:
        """One error per row; beyond the first of a kind they are only counted."""
        for row in rows[:MAX_OF_A_KIND]:
            operation = self.operation(row)
            report.error(
                code,
                message(operation, int(row)),
                operation=operation,
                device=int(self.device[row]),
                index=int(self.index[row]),
            )
        report.count(code, len(rows[MAX_OF_A_KIND:]))
