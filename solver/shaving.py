"""Bounds by propagation: targets that windows refute, once both orders of every pair of operations have been tried."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..compiler.certificate import Certificate
from ..compiler.problem import Problem
from ..compiler.propagation import applicable
from .tasks import Tasks, tasks
from .windows import Refuted, Windows, lowest_target

SHARE = 0.5
"""The share of the time left that one target may take."""


def shaved_bounds(problem: Problem, low: float, high: float, deadline: float) -> Iterator[Certificate]:
    """Certificates with ever better bounds above `low`, the last at most `high`, a value that some schedule has.

    Ends when the next target is not refuted, or at `deadline` (of time.monotonic).
    """
    if not applicable(problem):
        return
    model = tasks(problem)
    least, goal = model.ticks_up(low), model.ticks_up(high)
    reached = lowest_target(model, least, goal - 1, deadline)
    if reached > least:
        yield _certificate(model, reached, [])
    target = goal - 1
    while reached <= target and time.monotonic() < deadline:
        orders = _refutation(model, target, time.monotonic() + SHARE * (deadline - time.monotonic()))
        if orders is not None:
            reached = target + 1
            yield _certificate(model, reached, orders)
        else:
            goal = target
        target = (reached + goal) // 2
        if target == goal:
            return


def _refutation(model: Tasks, target: int, deadline: float) -> list[tuple[int, int]] | None:
    """The orders whose opposites are refuted one after the other until no schedule is left; None when some may be."""
    windows = None
    try:
        windows = Windows(model, target)
        windows.probe(deadline)
    except Refuted:
        return [] if windows is None else windows.shaved
    return None


def _certificate(model: Tasks, bound: int, orders: list[tuple[int, int]]) -> Certificate:
    named = [[str(model.operations[i]) for i in order] for order in orders]
    return Certificate(lower_bound=bound * model.tick, name="propagation", proof="checked", witness={"orders": named})
