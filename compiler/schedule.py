"""Schedules: one order of operations per device. Order is data; nothing here knows times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .operation import Operation, Step, parts


@dataclass(frozen=True)
class Schedule:
    """`orders[d]` is what device d executes, first to last; `method` says which rule or search made it."""

    orders: tuple[tuple[Step, ...], ...]
    method: str = "hand-written"

    @classmethod
    def of(cls, orders: Iterable[Iterable[Step]], method: str = "hand-written") -> Schedule:
        return cls(tuple(tuple(order) for order in orders), method)

    @property
    def devices(self) -> int:
        return len(self.orders)

    def makers(self) -> dict[Operation, tuple[int, int]]:
        """By value, the (device, index) of the step that makes it; a gradient is named by its B, even if a BW does."""
        return {
            Operation("B" if kind == "BW" else kind, stage, microbatch): (device, index)
            for device, order in enumerate(self.orders)
            for index, step in enumerate(order)
            for kind, stage, microbatch in parts(step)
        }

    def operations(self) -> Iterator[tuple[int, Operation]]:
        """Every operation with its device, device by device, pairs taken apart."""
        for device, order in enumerate(self.orders):
            for step in order:
                for operation in parts(step):
                    yield device, operation
