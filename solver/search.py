"""The search: from a problem to a proved plan.

Constructions first, bounds second, exact search third: a good incumbent is what lets bounds prune and the ILP prove.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from ..compiler.bound import critical_path
from ..compiler.certificate import Certificate, check
from ..compiler.errors import CertificateError, InputError
from ..compiler.named import NAMED, PLACEMENTS, named_schedule
from ..compiler.plan import Plan
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from ..compiler.simulation import simulate
from ..compiler.verification import require_valid, verify
from .backend import NAMES, BackendMissingError, ilp_backend
from .bounds import Finder
from .constructions import construct
from .exact import solve_exact
from .improvement import improve
from .lifting import lift
from .neighbourhood import improve_by_neighbourhoods
from .shaving import shaved_bounds

Report = Callable[[float, float | None, float | None], None]
"""Called with the elapsed seconds, the incumbent's value and the lower bound, where known."""

SHAVED_OPERATIONS = 800
"""Problems with more operations are not bounded by propagation: to tighten all windows so often takes too long."""

EXACT_OPERATIONS = 400
"""Problems with more F, B and W operations are not given whole to an exact back end: it would not solve the model."""

NEIGHBOURHOOD_OPERATIONS = 3000
"""Problems with more operations are not improved in parts: to tighten all windows takes too long for each."""

SIMULATED = ("zb-1p", "zb-2p", "zb-v", "v-half", "v-min")
SIMULATED_OPERATIONS = 60_000
"""Named schedules that several simulations draw are left out where there are more operations."""

CERTIFYING = 5.0
"""The most seconds for which a bound is sought for a schedule that is given, not searched."""

INTERRUPTED = "interrupted: the plan is the best one that was found until then"
"""The warning of a plan whose search was ended early."""

SECONDS_PER_OPERATION = 60e-6
"""What lowering and verifying an operation takes at the end, kept back from the time limit."""


def search(
    problem: Problem,
    *,
    schedule: str = "auto",
    group_size: int | None = None,
    backend: str = "cbc",
    time_limit: float = 30.0,
    seed: int = 0,
    start: Plan | None = None,
    report: Report | None = None,
) -> Plan:
    """The best plan found within `time_limit` seconds, or the named schedule asked for, with its certificate.

    The search begins from the plan `start`, of this problem or of one with other costs or caps, where it fits.
    An interrupt (Ctrl-C) ends the search early: the best plan found until then is returned, with a warning.
    Raises InputError for an unknown back end or time limit, InfeasibleError when no schedule fits the caps,
    InvalidScheduleError when a named one does not.
    """
    if not 0 < time_limit < float("inf"):
        raise InputError(f"the time limit must be a positive number of seconds, not {time_limit}")
    if backend not in NAMES:
        raise InputError(f"unknown back end {backend!r}", hint=f"one of {', '.join(NAMES)}")
    problem.check_feasible()
    if schedule != "auto":
        named = named_schedule(schedule, problem, group_size=group_size)
        return certified(problem, named, time_limit=min(time_limit, CERTIFYING), report=report)
    run = _Run(problem, time_limit, report)
    if start is not None:
        run.resume(start)
    try:
        _search(run, backend, seed)
    except KeyboardInterrupt:
        if not run.best.orders:
            raise
        run.warnings.append(INTERRUPTED)
    return Plan.build(problem, run.best, run.certificate, tuple(run.warnings))


def _search(run: _Run, backend: str, seed: int) -> None:
    """Let the run find the best schedule and bound until they meet or its time is up."""
    for candidate in _named(run.problem, run.until(0.3)):
        run.offer(candidate)
    candidates = construct(run.problem, seed=seed, deadline=run.until(0.2))
    run.try_out(islice(candidates, 1))
    run.bound(share=0.03)
    run.try_out(candidates)
    run.improve(seed, share=0.2)
    run.bound(share=0.3)
    run.shave(share=0.3)
    run.exact(backend)
    run.lift(backend, seed, share=0.5)
    while not run.proved and run.time_left:
        seed += 1
        run.bound(share=0.3)
        run.neighbourhoods(backend, seed, share=0.5)
        run.improve(seed, share=1.0 if run.problem.pairs_pay else 0.5)  # then nothing comes after it
    if not (run.proved or run.problem.pairs_pay) and backend != "cp-sat" and run.operations <= EXACT_OPERATIONS:
        better = "--backend cp-sat (pip install 'debubble[cp-sat]') proves more in the same time"
        run.warnings.append(f"the gap is open: at this size {better}")


def certified(
    problem: Problem, schedule: Schedule, *, time_limit: float = CERTIFYING, report: Report | None = None
) -> Plan:
    """A given schedule as a plan, with the best bound found within `time_limit` seconds.

    Raises InvalidScheduleError when the schedule is not one of the problem's, or does not fit its caps.
    """
    require_valid(problem, schedule)
    run = _Run(problem, time_limit, report)
    run.offer(schedule)
    run.bound(share=1.0)
    return Plan.build(problem, run.best, run.certificate)


class _Run:
    """One search: the incumbent `best` with its `value`, the strongest certificate, and the clock."""

    def __init__(self, problem: Problem, time_limit: float, report: Report | None) -> None:
        self.problem, self.report = problem, report
        self.started = time.monotonic()
        self.operations = 3 * problem.stages * problem.microbatches
        self.deadline = self.started + max(0.3 * time_limit, time_limit - SECONDS_PER_OPERATION * self.operations)
        self.value = float("inf")
        self.best: Schedule = Schedule(())
        self.certificate = Certificate(lower_bound=critical_path(problem), name="critical path", proof="checked")
        self.finder = Finder(problem)
        self.warnings: list[str] = []

    @property
    def proved(self) -> bool:
        """True when the incumbent meets the bound."""
        return self.certificate.gap(self.value) == 0

    @property
    def time_left(self) -> bool:
        return time.monotonic() < self.deadline

    def until(self, share: float) -> float:
        """The moment (monotonic) when `share` of the time that is left will be used."""
        now = time.monotonic()
        return now + max(0.0, self.deadline - now) * share

    def offer(self, schedule: Schedule) -> None:
        """Take a valid schedule as the incumbent if it is the best so far."""
        value = simulate(self.problem, schedule).value
        if value < self.value:
            self.best, self.value = schedule, value
            self.tell()

    def resume(self, plan: Plan) -> None:
        """Take over a plan's schedule where it fits, and its certificate where it is of the same problem."""
        if plan.problem == self.problem:
            self.certificate = plan.certificate
        if verify(self.problem, plan.schedule).valid:
            self.offer(plan.schedule)

    def tell(self, value: float | None = None, bound: float = 0.0) -> None:
        """Report the best value and bound, or what a back end has found on its way."""
        if self.report is not None:
            strongest = max(bound, self.certificate.lower_bound) or None
            self.report(time.monotonic() - self.started, self.value if value is None else value, strongest)

    def try_out(self, candidates: Iterable[Schedule]) -> None:
        """Offer one candidate after the other, while the best does not meet the bound."""
        for candidate in () if self.proved else candidates:
            self.offer(candidate)
            if self.proved:
                break

    def bound(self, share: float) -> None:
        """The strongest bound that is checked within a share of the time, going on where the last call ended."""
        if self.proved:
            return
        certificate = self.finder.find(self.value, self.until(share))
        if certificate.lower_bound > self.certificate.lower_bound:
            self.certificate = certificate
            self.tell()

    def improve(self, seed: int, share: float) -> None:
        """Local search on the incumbent."""
        if not self.proved:
            improve(
                self.problem,
                self.best,
                seed=seed,
                deadline=self.until(share),
                target=self.certificate.lower_bound,
                report=self.offer,
            )

    def shave(self, share: float) -> None:
        """The strongest bound that propagation proves and the checker confirms within a share of the time."""
        if self.proved or self.operations > SHAVED_OPERATIONS:
            return
        for certificate in shaved_bounds(self.problem, self.certificate.lower_bound, self.value, self.until(share)):
            try:
                check(self.problem, certificate, deadline=self.deadline)
            except CertificateError:
                return
            self.certificate = certificate
            self.tell()

    def lift(self, backend: str, seed: int, share: float) -> None:
        """Follow the best steady states, where the problem is too large for neighbourhoods."""
        if self.proved or self.operations <= NEIGHBOURHOOD_OPERATIONS:
            return
        with self.solver_may_be_missing():
            solver = ilp_backend("cbc" if backend == "cp-sat" else backend)
            self.try_out(lift(self.problem, backend=solver, seed=seed, deadline=self.until(share)))

    def exact(self, backend: str) -> None:
        """Let an exact back end look for better schedules, or refute that there are any."""
        if self.proved or self.operations > EXACT_OPERATIONS or self.problem.pairs_pay:  # exact models have no pairs
            return
        with self.solver_may_be_missing():
            result = solve_exact(
                self.problem,
                self.best,
                self.certificate.lower_bound,
                backend=backend,
                deadline=self.until(0.7),
                report=self.tell,
            )
            self.offer(result.schedule)
            if result.lower_bound > self.certificate.lower_bound * (1 + 1e-9):
                self.certificate = Certificate(
                    lower_bound=result.lower_bound, name="exact search", proof="solver", backend=result.backend
                )
                self.tell()

    def neighbourhoods(self, backend: str, seed: int, share: float) -> None:
        """Let an exact back end improve one part of the schedule after the other."""
        if self.proved or self.warnings or self.operations > NEIGHBOURHOOD_OPERATIONS or self.problem.pairs_pay:
            return
        with self.solver_may_be_missing():
            improve_by_neighbourhoods(
                self.problem,
                self.best,
                seed=seed,
                deadline=self.until(share),
                target=self.certificate.lower_bound,
                backend=backend,
                report=self.offer,
            )

    @contextmanager
    def solver_may_be_missing(self) -> Iterator[None]:
        """A missing solver costs what it would have found, and not the plan."""
        try:
            yield
        except BackendMissingError as error:
            self.warnings.append(f"no ILP solver: {error}; the plan is the best of the constructions and local search")


def _named(problem: Problem, deadline: float) -> Iterator[Schedule]:
    """The named schedules that exist for this problem and fit its caps, those drawn for its placement first; of large
    problems, those quickly drawn."""
    large = 3 * problem.stages * problem.microbatches > SIMULATED_OPERATIONS
    for name in sorted(NAMED, key=lambda name: PLACEMENTS.get(name, "linear") != problem.placement.kind):
        if time.monotonic() > deadline or (large and name in SIMULATED):
            continue
        try:
            candidate = named_schedule(name, problem)
        except InputError:
            continue
        if verify(problem, candidate).valid:
            yield candidate
