"""The best lower bound on a problem's objective, as a certificate.

Formulas first, then relaxations that keep one device, then two and more, until the bound meets the incumbent or the
time is up. Every bound holds for every schedule of the problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..compiler import bound
from ..compiler.certificate import Certificate, check
from ..compiler.errors import CertificateError
from ..compiler.problem import Problem
from ..compiler.relaxation import most_kept, relax
from ..compiler.route import prepared
from .relaxation import Budget, Futures, OutOfBudgetError, Walk, futures

Report = Callable[[Certificate], None]

ROUNDS = ((20_000, 1), (100_000, 2), (400_000, 3), (800_000, 4))
"""How many labels the search of one relaxation may make, and how many devices it may keep, round after round."""
DIVE_WIDTH = 6
"""How many labels per level the quick look at a relaxation keeps."""
FAILURES = 3
"""How many limits a search may try in one round that take too many labels."""
CANDIDATES = 12
"""How many sets of two, and of three, and of four devices are looked at."""


def best_bound(
    problem: Problem,
    *,
    incumbent: float | None = None,
    deadline: float | None = None,
    report: Report | None = None,
    known: Certificate | None = None,
) -> Certificate:
    """The best bound found until it meets the `incumbent` (a value some schedule has) or the `deadline` comes.

    `deadline` is in the time of time.monotonic; without one the search ends when every relaxation it knows was tried.
    The formulas alone take about a second for the largest problems. `report` is called with every better certificate.
    `known` is what an earlier call found, and only to be surpassed.
    """
    finder = _Finder(problem, incumbent, deadline, report)
    if known is not None:
        finder.best = known
    finder.try_formulas()
    for labels, most in ROUNDS:
        for devices in finder.promising(min(most, most_kept(problem))):
            if finder.finished:
                return finder.best
            finder.try_relaxation(devices, labels)
    return finder.best


class _Finder:
    """The best certificate so far, and what was learned on the way."""

    def __init__(
        self, problem: Problem, incumbent: float | None, deadline: float | None, report: Report | None
    ) -> None:
        self.problem, self.incumbent, self.report = problem, incumbent, report
        self.deadline = math.inf if deadline is None else deadline
        self.clock, _ = prepared(problem)
        self.goal = None if incumbent is None else self.clock.ticks(incumbent)
        self.best = Certificate(lower_bound=0.0, name="critical path", proof="checked")
        self.reached: dict[tuple[int, ...], int] = {}
        """For every set of devices looked at, the value of some order, which its bound cannot exceed."""
        self.proven: dict[tuple[int, ...], int] = {}
        """For every set of devices searched, its bound."""
        self.limited: dict[tuple[int, int], Futures] = {}

    @property
    def finished(self) -> bool:
        met = self.incumbent is not None and self.best.gap(self.incumbent) == 0
        return met or time.monotonic() >= self.deadline

    def try_formulas(self) -> None:
        """The bounds that a formula gives. Load and work are looked at in any case: they take no time."""
        self._offer(bound.critical_path(self.problem), "critical path", {})
        for name, formula in bound.OF_A_DEVICE.items():
            for device in range(self.problem.devices):
                if name in ("load", "work") or not self.finished:
                    self._offer(formula(self.problem, device), name, {"device": device})

    def _offer(self, value: float, name: str, witness: dict[str, Any]) -> None:
        """Take a bound that is better than the best one, when the checker confirms it."""
        if value <= self.best.lower_bound:
            return
        certificate = Certificate(lower_bound=value, name=name, proof="checked", witness=witness)
        try:
            check(self.problem, certificate, deadline=None if math.isinf(self.deadline) else self.deadline)
        except CertificateError:
            return
        self.best = certificate
        if self.report is not None:
            self.report(certificate)

    def promising(self, most: int) -> Iterator[tuple[int, ...]]:
        """Which devices to keep: each alone, then sets of up to `most` that grow from the best one."""
        p = self.problem.devices
        kept: tuple[int, ...] = ()
        others = list(dict.fromkeys((0, p - 1, p // 2, *range(p))))
        for count in range(1, most + 1):
            sets = [tuple(sorted((*kept, other))) for other in others if other not in kept]
            if count > 1:
                sets = sets[:: max(1, len(sets) // CANDIDATES)]
                for devices in sets:
                    if not self.finished:
                        self._dive(devices)
                sets.sort(key=self._promise, reverse=True)
            yield from sets
            kept = max(sets, key=self._promise)

    def _promise(self, devices: tuple[int, ...]) -> tuple[int, int]:
        """What a set of devices proves, and might prove."""
        return self.proven.get(devices, 0), self.reached.get(devices, 0)

    def _dive(self, devices: tuple[int, ...]) -> None:
        """Find some order of a relaxation quickly: the bound cannot be above its value."""
        if devices in self.reached:
            return
        limit = 10**30 if self.goal is None else self.goal - 1
        try:
            value = Walk(relax(self.problem, devices), limit, width=DIVE_WIDTH).optimum(
                Budget(ROUNDS[-1][0], self.deadline)
            )
        except OutOfBudgetError:
            return
        self.reached[devices] = limit + 1 if value is None else value

    def try_relaxation(self, devices: tuple[int, ...], labels: int) -> None:
        """The bound of the relaxation that keeps these devices.

        The first limit is the most it might prove, which finds the optimum. When that takes too many labels, smaller
        ones are tried; a limit below which nothing is found is a bound as well.
        """
        self._dive(devices)
        most = self.reached.get(devices, 0)
        value = max(self.clock.ticks(self.best.lower_bound), self.proven.get(devices, 0))
        failures, limit = 0, most - 1
        while value <= limit and failures < FAILURES and not self.finished:
            budget = Budget(labels, time.monotonic() + (self.deadline - time.monotonic()) / 2)
            try:
                optimum = self._optimum(devices, limit, budget)
            except OutOfBudgetError:
                failures, most = failures + 1, limit
            else:
                if optimum is not None:
                    value = self.reached[devices] = optimum
                    break
                value = limit + 1
            limit = value + (most - value) // 4
            if limit == most:
                break
        self.proven[devices] = max(value, self.proven.get(devices, 0))
        self._offer(self.clock.time(value), "relaxation", {"devices": list(devices)})

    def _optimum(self, devices: tuple[int, ...], limit: int, budget: Budget) -> int | None:
        """The optimum of a relaxation, or None when it is above the limit."""
        relaxation = relax(self.problem, devices)
        left = {}
        if len(devices) > 1:
            for index, device in enumerate(devices):
                if relaxation.measured[index]:
                    if (device, limit) not in self.limited:
                        self.limited[device, limit] = futures(relax(self.problem, (device,)), limit, budget)
                    left[index] = self.limited[device, limit]
        return Walk(relaxation, limit, left).optimum(budget)
