"""The best lower bound on a problem's objective, as a certificate.

Formulas first, then relaxations that keep one device, then more, until the bound meets the incumbent or the time is up.
Every bound holds for every schedule of the problem.
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
from ..compiler.relaxation import Kept, most_kept, relax, simpler
from ..compiler.route import prepared
from .relaxation import Budget, Futures, OutOfBudgetError, Walk, futures

Report = Callable[[Certificate], None]

ROUNDS = ((100_000, 1), (400_000, 2), (800_000, 3), (800_000, 4))
"""How many labels the search of one relaxation may make, and how many devices it may keep whole, round after round."""
ALONE = 0.2
"""The share of the labels for a device alone."""
CANDIDATES = 4
"""How many devices are tried as the next to be kept in passing, once each was tried beside the first."""
SETS = 12
"""How many sets of two, and of three, and of four devices kept whole are tried."""
STEP = 0.01
"""How far above the best bound a relaxation is first tried, as a part of it; then twice as far, and so on."""
SEARCHING = 0.4
"""The share of the time that one search may take; what is left is needed to check what it finds."""


def best_bound(
    problem: Problem,
    *,
    incumbent: float | None = None,
    deadline: float | None = None,
    report: Report | None = None,
) -> Certificate:
    """The best bound found until it meets the `incumbent` (a value some schedule has) or the `deadline` comes.

    `deadline` is in the time of time.monotonic; without one the search ends when every relaxation it knows was tried.
    The formulas alone take about a second for the largest problems. `report` is called with every better certificate.
    """
    return Finder(problem, report).find(incumbent, deadline)


class Finder:
    """The best certificate so far, and what was learned on the way: it can be asked again."""

    def __init__(self, problem: Problem, report: Report | None = None) -> None:
        self.problem, self.report = problem, report
        self.clock, _ = prepared(problem)
        self.incumbent: float | None = None
        self.deadline = math.inf
        self.best = Certificate(lower_bound=0.0, name="critical path", proof="checked")
        self.proven: dict[Kept, int] = {}
        """For every relaxation searched, its bound."""
        self.settled: set[Kept] = set()
        """The relaxations whose bound is their optimum, or enough."""
        self.futures: dict[Kept, tuple[int, Futures]] = {}
        """With the limit that they were found for."""
        self.attempts = self._attempts()

    def find(self, incumbent: float | None = None, deadline: float | None = None) -> Certificate:
        """The best bound when it meets the incumbent, the deadline comes, or there is nothing left to try."""
        self.incumbent, self.deadline = incumbent, math.inf if deadline is None else deadline
        if self.proven:
            self._offer_relaxation(max(self.proven, key=self._bound))
        else:
            self._try_formulas()
        while not self.finished and next(self.attempts, False):
            pass
        return self.best

    @property
    def finished(self) -> bool:
        met = self.incumbent is not None and self.best.gap(self.incumbent) == 0
        return met or time.monotonic() >= self.deadline

    def _try_formulas(self) -> None:
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

    def _attempts(self) -> Iterator[bool]:
        """Search one relaxation after the other, yielding between them.

        Each device alone. Then the best of them with ever more others in passing, and whole: in each step the other
        that proves most stays.
        """
        devices, most = range(self.problem.devices), most_kept(self.problem)
        order = list(dict.fromkeys((0, len(devices) - 1, len(devices) // 2, *devices)))
        for number, (labels, most_whole) in enumerate(ROUNDS):
            for device in order:
                yield from self._attempt(((device,), ()), int(labels * ALONE))
            kept: Kept = max((((device,), ()) for device in order), key=self._bound)
            first, others = kept[0], [device for device in order if device not in kept[0]]
            for count in range(1, most):
                others.sort(key=lambda device: self._bound((first, (device,))), reverse=True)
                nearest = [device for device in others if device not in kept[1]]
                if number or count > 1:
                    nearest = nearest[:CANDIDATES]
                sets: list[Kept] = [(first, tuple(sorted((*kept[1], device)))) for device in nearest]
                for one in sets:
                    yield from self._attempt(one, labels)
                kept = max(sets, key=self._bound)
                if not self.settled.intersection(sets):
                    break
            kept = (first, ())
            for _ in range(1, min(most, most_whole)):
                free = [device for device in others if device not in kept[0]]
                sets = [(tuple(sorted((*kept[0], device))), ()) for device in free[:SETS]]
                for one in sets:
                    yield from self._attempt(one, labels)
                kept = max(sets, key=self._bound)

    def _bound(self, kept: Kept) -> int:
        return self.proven.get(kept, 0)

    def _attempt(self, kept: Kept, labels: int) -> Iterator[bool]:
        """Search a relaxation, and again under a later deadline while there is not the time for it."""
        while kept not in self.settled and not self._search(kept, labels):
            yield False
        yield True

    def _search(self, kept: Kept, labels: int) -> bool:
        """The bound of a relaxation, as far as it is above the best one. False when the time was too short.

        A limit below which nothing is found is a bound. It is raised from the best bound on in growing steps, until the
        optimum is found, or a search takes too many labels.
        """
        best, highest = self.clock.ticks(self.best.lower_bound), self._highest()
        value, step = best, max(1, int(best * STEP))
        budget, optimum = Budget(labels), None
        while value <= highest and optimum is None:
            limit = min(value + step, highest)
            now = time.monotonic()
            budget = Budget(labels, now + (self.deadline - now) * SEARCHING)
            try:
                optimum = self._optimum(kept, limit, budget)
            except OutOfBudgetError:
                break
            value, step = limit + 1 if optimum is None else optimum, 2 * step
            self.proven[kept] = value
        else:
            self.settled.add(kept)
        self._offer_relaxation(kept)
        return kept in self.settled or budget.labels < 0

    def _offer_relaxation(self, kept: Kept) -> None:
        """Offer its bound, and forget it where the checker takes too long for it."""
        witness = {"devices": list(kept[0]), "passing": list(kept[1])}
        value = self.clock.time(self._bound(kept))
        self._offer(value, "relaxation", witness)
        if value > self.best.lower_bound and time.monotonic() < self.deadline:
            self.proven[kept] = 0

    def _highest(self) -> int:
        """The largest limit that is of interest: below the incumbent, or what one micro-batch after the other takes."""
        if self.incumbent is not None:
            return self.clock.ticks(self.incumbent) - 1
        _, paths = prepared(self.problem)
        return sum(2 * path.microbatches * (path.starts[-1] + sum(path.wholes)) for path in paths)

    def _optimum(self, kept: Kept, limit: int, budget: Budget) -> int | None:
        """The optimum of a relaxation, or None when it is above the limit."""
        return Walk(relax(self.problem, kept), limit, self._left(kept, limit, budget)).optimum(budget)

    def _left(self, kept: Kept, limit: int, budget: Budget) -> dict[tuple[int, ...], Futures]:
        """What is left at least to some of the kept devices at a time."""
        left = {}
        for fewer in simpler(self.problem, kept):
            if fewer not in self.futures or self.futures[fewer][0] < limit:
                inner = self._left(fewer, limit, budget)
                self.futures[fewer] = limit, futures(relax(self.problem, fewer), limit, budget, inner)
            left[(*fewer[0], *fewer[1])] = self.futures[fewer][1]
        return left
