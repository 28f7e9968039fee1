"""Arrivals: which steps made the inputs of every step, and when they were there."""

from __future__ import annotations

from typing import NamedTuple

from .operation import parts
from .simulation import Timeline, inputs


class Arrival(NamedTuple):
    """One input of a step: what made it (`step` of the order of `device`), its transfer time, and when it was there."""

    device: int
    step: int
    transfer: float
    time: float


def arrivals(timeline: Timeline) -> list[list[tuple[Arrival, ...]]]:
    """By device and index, the inputs of every step; one from the step's own device takes no transfer time.

    A pair's halves count together. Linear in the number of steps.
    """
    problem, orders, ends = timeline.problem, timeline.schedule.orders, timeline.ends
    stages = problem.stages
    made = timeline.schedule.makers()
    found: list[list[tuple[Arrival, ...]]] = [[] for _ in orders]
    for device, index in timeline.execution.sequence:
        needs = []
        for operation in parts(orders[device][index]):
            for need in inputs(operation, stages):
                source, position = made[need]
                boundary = min(need.stage, operation.stage)
                transfer = problem.transfer(source, device, boundary, need.microbatch)
                needs.append(Arrival(source, position, transfer, ends[source][position] + transfer))
        found[device].append(tuple(needs))
    return found


def last_arrival(needs: tuple[Arrival, ...]) -> Arrival | None:
    """The input that came last: what the step waited for, if it waited."""
    return max(needs, key=lambda need: need.time, default=None)
