"""Exact search: better schedules until a back end finds that there is none.

Every attempt has a target, in ticks, between the lower bound and the best value known. Windows refute it by
propagation, or a solver gets the model of what they leave. Low targets leave small models, so they come first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from ..compiler.simulation import simulate
from ..compiler.verification import verify
from .backend import Solver, ilp_backend
from .cpsat import CpSat
from .ilp import IlpSolver
from .tasks import Tasks, tasks
from .windows import Refuted, Windows, lowest_target

SHARE = 0.3
"""The share of the time that is left which an attempt at a target below the highest may take."""

PROPAGATION = "propagation"
"""Whose word a bound is that no solver was needed for."""

Progress = Callable[[float, float], None]
"""Called with the best value and the lower bound known, after every attempt."""


@dataclass(frozen=True)
class ExactResult:
    """The best schedule and the best lower bound (time units) known at the end.

    `complete` means that no schedule is better. The bound rests on the word of `backend` (a solver's name and version),
    or on propagation alone. `message` says how the search ended.
    """

    schedule: Schedule
    lower_bound: float
    complete: bool
    backend: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What one attempt found: a schedule, or None, and a bound in ticks with the one on whose word it rests."""

    schedule: Schedule | None
    bound: int
    word: str


def solve_exact(
    problem: Problem,
    incumbent: Schedule,
    lower_bound: float,
    *,
    backend: str = "cbc",
    deadline: float,
    report: Progress | None = None,
) -> ExactResult:
    """Improve a valid schedule until it is optimal, or until `deadline` (of time.monotonic).

    Every schedule found is verified, and valued by simulation. Where the problem allows overlapped pairs that save
    time, the model lacks them, and the bound stays as given. Raises BackendMissingError when the back end is not
    installed, InputError when there is none of that name.
    """
    solver = solver_called(backend)
    model = tasks(problem)
    best, value = incumbent, simulate(problem, incumbent).value
    # A bound in ticks is the next whole one only where every value is whole.
    low = model.ticks_up(lower_bound) if model.exact else math.floor(lower_bound / model.tick)
    high = model.ticks_up(value) - 1
    low, word = lowest_target(model, low, high, deadline), PROPAGATION
    target, step = low, 1
    message = "the time limit"
    while low <= high and time.monotonic() < deadline:
        left = deadline - time.monotonic()
        outcome = _attempt(model, target, solver, deadline if target == high else deadline - left * (1 - SHARE))
        if outcome.bound > low:
            low, word = outcome.bound, outcome.word
        if outcome.schedule is not None:
            found = simulate(problem, outcome.schedule).value if verify(problem, outcome.schedule).valid else math.inf
            if found >= value:
                message = "the model has a solution that is no better schedule"
                break
            best, value = outcome.schedule, found
            high = min(high, model.ticks_up(value) - 1)
            target = (low + high) // 2
        elif outcome.bound > target:
            target = min(low + step - 1, high)
            step *= 2
        else:
            target = (target + high + 1) // 2
        if report is not None:
            report(value, max(lower_bound, low * model.tick if model.covers else 0.0))
    bound = max(lower_bound, low * model.tick if model.covers else 0.0)
    complete = value <= bound * (1 + 1e-9)
    if low > high and not complete:
        message = "no better schedule without overlapped pairs"
    return ExactResult(best, min(bound, value), complete, word, "optimal" if complete else message)


def _attempt(model: Tasks, target: int, solver: Solver, deadline: float) -> Outcome:
    """Look for a schedule with a value of at most `target` ticks."""
    try:
        windows = Windows(model, target)
        windows.probe(time.monotonic() + solver.probing * (deadline - time.monotonic()))
    except Refuted:
        return Outcome(None, target + 1, PROPAGATION)
    solution = solver.solve(windows, deadline)
    if solution.status == "infeasible":
        return Outcome(None, target + 1, solver.name)
    found = model.schedule(solution.order, solution.fusions, solver.name) if solution.order else None
    return Outcome(found, min(solution.bound, target + 1), solver.name)


def solver_called(name: str) -> Solver:
    """The solver "cbc", "highs" or "cp-sat". Raises BackendMissingError when it is not installed."""
    return CpSat() if name == "cp-sat" else IlpSolver(ilp_backend(name))
