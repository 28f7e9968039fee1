"""The best lower bound on a problem's objective, as a certificate.

Formulas first, then relaxations that keep one device, then two and more, until the bound meets the incumbent or the
time is up. Every bound holds for every schedule of the problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from debubble.compiler import bound
from debubble.compiler.certificate import Certificate, check
from debubble.compiler.errors import CertificateError
from debubble.compiler.problem import Problem
from debubble.compiler.relaxation import most_kept, relax

from .relaxation import Budget, OutOfBudgetError, Walk

Report = Callable[[Certificate], None]

LABELS = 400_000
"""How many labels the search of one relaxation may make. Checking makes about as many."""
FIRST_STEP = 256
"""The first limit that a search tries is this part of the known bound above it."""


def best_bound(
    problem: Problem,
    *,
    incumbent: float | None = None,
    deadline: float | None = None,
    report: Report | None = None,
) -> Certificate:
    """The best bound found until it meets the `incumbent` (a value some schedule has) or the `deadline` comes.

    `deadline` is in the time of time.monotonic; without one the search ends when every relaxation it knows was tried.
    The formulas alone take well under a second even for large problems. `report` is called with every better certificate.
    """
    best = _formulas(problem)
    if report is not None:
        report(best)
    for devices in _kept(problem):
        if (incumbent is not None and best.gap(incumbent) == 0) or _left(deadline) <= 0:
            break
        found = _relaxed(problem, devices, best.lower_bound, incumbent, deadline)
        if found is not None:
            best = found
            if report is not None:
                report(best)
    return best


def _left(deadline: float | None) -> float:
    """The seconds until the deadline."""
    return math.inf if deadline is None else deadline - time.monotonic()


def _formulas(problem: Problem) -> Certificate:
    """The best of the bounds that a formula gives."""
    best = _certify(problem, bound.critical_path(problem), "critical path", {})
    for device in range(problem.devices):
        for name, formula in (("load", bound.load), ("memory", bound.memory)):
            value = formula(problem, device)
            if value > best.lower_bound:
                best = _certify(problem, value, name, {"device": device})
    return best


def _certify(problem: Problem, value: float, name: str, witness: dict[str, Any]) -> Certificate:
    """A certificate that the checker confirms. Raises CertificateError when it does not."""
    certificate = Certificate(lower_bound=value, name=name, proof="checked", witness=witness)
    check(problem, certificate)
    return certificate


def _kept(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Which devices to keep, the most promising first: one, then two, ..."""
    p = problem.devices
    ends = dict.fromkeys((0, p - 1, p // 2, *range(p)))
    yield from ((device,) for device in ends)
    for count in range(2, most_kept(problem) + 1):
        yield from combinations(range(p), count)


def _relaxed(
    problem: Problem, devices: tuple[int, ...], known: float, incumbent: float | None, deadline: float | None
) -> Certificate | None:
    """The bound of the relaxation that keeps these devices, where it is above the known one.

    The limit on the value is raised step by step, so that what is refuted when the budget ends is a bound as well.
    """
    relaxation = relax(problem, devices)
    walk = Walk(relaxation)
    goal = math.inf if incumbent is None else relaxation.ticks(incumbent)
    value = start = relaxation.ticks(known)
    # Checking takes about twice as long as finding.
    budget = Budget(LABELS, None if deadline is None else time.monotonic() + _left(deadline) / 3)
    step = max(1, value // FIRST_STEP)
    try:
        while value < goal:
            limit = int(min(goal - 1, value + step))
            optimum = walk.optimum(limit, budget)
            if optimum is not None:
                value = max(value, optimum)
                break
            value = limit + 1
            step *= 4
    except OutOfBudgetError:
        pass
    if value <= start:
        return None
    try:
        return _certify(problem, relaxation.time(value), "relaxation", {"devices": list(devices)})
    except CertificateError:
        return None
