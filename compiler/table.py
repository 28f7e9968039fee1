"""Tables: a schedule as arrays with one row per operation, for checks that must be fast on a million of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .diagnostic import MAX_OF_A_KIND, Report
from .operation import KINDS, Operation, parts
from .schedule import Schedule

Rows = np.ndarray
NUMBER = {kind: number for number, kind in enumerate(KINDS)}


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
        operations: list[Operation] = []
        indices = []
        for order in schedule.orders:
            before = len(operations)
            for step in order:
                operations.extend(parts(step))
            index = np.arange(len(order))
            if len(operations) - before > len(order):
                index = np.repeat(index, [len(parts(step)) for step in order])
            indices.append(index)
        count = len(operations)
        return cls(
            np.fromiter((NUMBER[operation[0]] for operation in operations), np.int8, count),
            np.fromiter((operation[1] for operation in operations), np.int64, count),
            np.fromiter((operation[2] for operation in operations), np.int64, count),
            np.repeat(np.arange(schedule.devices), [len(rows) for rows in indices]),
            np.concatenate(indices) if indices else np.empty(0, np.int64),
        )

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
