"""Neighbourhood search: part of a schedule is set free, the rest keeps its order, and a solver improves it.

The free part is what runs around some moment, on all devices or a few (Shaw 1998, for the general scheme). Windows for
the next better value leave a small model of it, or refute it at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from ..compiler.simulation import simulate
from ..compiler.verification import verify
from .backend import Solver
from .exact import solver_called
from .tasks import Tasks, tasks
from .windows import Refuted, Windows

SIZE = 40
"""Tasks in the first free part. Parts grow where the solver has time to spare, and shrink where it has not."""

SHRINK, GROW = 0.8, 1.05

ALL_DEVICES = 0.7
"""The share of free parts that are taken from all devices."""

SECONDS = 5.0
"""The most time for one part."""


def improve_by_neighbourhoods(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int,
    deadline: float,
    target: float = 0.0,
    backend: str = "cbc",
    report: Callable[[Schedule], None] | None = None,
) -> Schedule:
    """A schedule at least as good as the given valid one.

    Ends at `deadline` (of time.monotonic), at a value of `target`, or when the free part was all and nothing better
    exists. Every improvement is verified, valued by simulation, and given to `report`. Raises BackendMissingError when
    the back end is not installed.
    """
    solver = solver_called(backend)
    model = tasks(problem)
    best, value = schedule, simulate(problem, schedule).value
    orders, moments = _placed(model, schedule)
    chance = random.Random(seed)
    number = len(model.operations)
    size = float(min(SIZE, number))
    while value > target * (1 + 1e-9) and time.monotonic() < deadline:
        free = _part(orders, moments, int(size), chance)
        until = min(deadline, time.monotonic() + SECONDS)
        status, found = _solve(model, solver, model.ticks_up(value) - 1, blocks(orders, free), until)
        if status == "infeasible" and len(free) == number:
            break
        size = max(2.0, size * SHRINK) if status == "stopped" else min(float(number), size * GROW)
        if found is not None and verify(problem, found).valid and simulate(problem, found).value < value:
            best, value = found, simulate(problem, found).value
            orders, moments = _placed(model, found)
            if report is not None:
                report(best)
    return best


def _placed(model: Tasks, schedule: Schedule) -> tuple[list[list[int]], list[float]]:
    """The tasks of each device in order, and the middle of each task's execution in ticks."""
    orders = model.orders(schedule)
    long_enough = sum(model.durations) + sum(lag for _, _, lag in model.arcs)
    starts = Windows(model, long_enough, blocks(orders, set())).earliest
    return orders, [start + duration / 2 for start, duration in zip(starts, model.durations, strict=True)]


def _part(orders: list[list[int]], moments: list[float], size: int, chance: random.Random) -> set[int]:
    """The `size` tasks that run nearest to a random moment, on all devices or on some neighbours."""
    devices = len(orders)
    width = devices if chance.random() < ALL_DEVICES else chance.randint(1, devices)
    first = chance.randint(0, devices - width)
    moment = chance.uniform(0, max(moments))
    members = [task for device in range(first, first + width) for task in orders[device]]
    return set(sorted(members, key=lambda task: abs(moments[task] - moment))[:size])


def blocks(orders: list[list[int]], free: set[int]) -> list[list[list[int]]]:
    """For each device, its tasks in order, cut everywhere but between free ones."""
    cut: list[list[list[int]]] = []
    for order in orders:
        parts: list[list[int]] = []
        for place, task in enumerate(order):
            if place > 0 and task in free and order[place - 1] in free:
                parts[-1].append(task)
            else:
                parts.append([task])
        cut.append(parts)
    return cut


def _solve(
    model: Tasks, solver: Solver, goal: int, kept: list[list[list[int]]], deadline: float
) -> tuple[str, Schedule | None]:
    """The solver's status, and a schedule of at most `goal` ticks that keeps the blocks of each device in order."""
    try:
        windows = Windows(model, goal, kept)
    except Refuted:
        return "infeasible", None
    solution = solver.solve(windows, deadline)
    if not solution.order:
        return solution.status, None
    return solution.status, model.schedule(solution.order, solution.fusions, "neighbourhood search")
