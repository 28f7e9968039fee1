"""Tuning: the front of time against memory over placements, chunks, micro-batch counts, caps and recomputation.

Successive halving (Karnin et al. 2013): every candidate gets a short search, then again and again the more promising
half gets twice the time. A candidate whose lower bound is no better than a plan that fits its cap is not searched.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from .cache import Cache
from .candidates import CAPS, Candidate, Model, Space, space
from .compiler.errors import InfeasibleError, InputError
from .compiler.interchange.layer_files import read_model
from .compiler.numbers import check_count
from .compiler.plan import Plan
from .compiler.recomputation import Recompute
from .front import Front, Point, floor, pareto
from .solver.bounds import best_bound
from .solver.search import INTERRUPTED, search

ROUNDS = 4
"""Each takes an equal part of the time; the candidates are halved from one to the next."""

LEAST = 0.2
"""A search of fewer seconds than this is not worth its start."""


class Status(NamedTuple):
    """How far tuning has come."""

    round: int
    searches: int
    planned: int
    """Searches done in this round, and how many it has."""
    dropped: int
    front: int
    proved: int
    """Plans on the front, and how many of them are optimal for their placement and cap."""


Report = Callable[[Status], None]
ModelLike: TypeAlias = Model | str | os.PathLike[str]


def tune(
    model: ModelLike,
    *,
    microbatches: int | Sequence[int],
    devices: int | None = None,
    second: tuple[ModelLike, int] | None = None,
    placements: Sequence[str] | None = None,
    chunks: Sequence[int] = (2,),
    caps: Sequence[float] = CAPS,
    memory_cap: float | Sequence[float] | None = None,
    recompute: Sequence[Recompute] | None = None,
    objective: str = "makespan",
    backward: str = "any",
    backend: str = "cbc",
    time_limit: float = 240.0,
    seed: int = 0,
    jobs: int = 1,
    cache: str | os.PathLike[str] | None = None,
    report: Report | None = None,
) -> Front:
    """Search for the plans that no other beats in both time and memory; see `candidates.space` for what is tried.

    `model` is a profile of one stage per device, or layers for some `devices`, or a file of either.
    The search takes `time_limit` seconds at most, in `jobs` processes; an interrupt (Ctrl-C) ends it early and keeps
    what was found. Plans are saved in the directory `cache`, and a later call with the same one goes on from them.
    Raises InputError when the request cannot be understood, InfeasibleError when no candidate fits its cap.
    """
    if not 0 < time_limit < math.inf:
        raise InputError(f"the time limit must be a positive number of seconds, not {time_limit}")
    check_count("jobs", jobs)
    candidates = space(
        _as_model(model),
        devices=devices,
        microbatches=(microbatches,) if isinstance(microbatches, int) else microbatches,
        second=None if second is None else (_as_model(second[0]), second[1]),
        placements=placements,
        chunks=chunks,
        caps=caps,
        memory_cap=memory_cap,
        recompute=recompute,
        objective=objective,
        backward=backward,
    )
    run = _Run(candidates, None if cache is None else Cache(cache), report, time.monotonic() + time_limit)
    started = time.monotonic()
    interrupted = False
    try:
        with _processes(jobs) as pool:
            run.begin()
            run.rounds(jobs, pool, {"backend": backend, "seed": seed})
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if run.cache is not None:
            run.cache.leave()
    return run.front(time.monotonic() - started, interrupted)


def _as_model(model: ModelLike) -> Model:
    return read_model(model) if isinstance(model, str | os.PathLike) else model


@dataclass
class _Run:
    """The best plan and bound of every candidate so far."""

    space: Space
    cache: Cache | None
    report: Report | None
    deadline: float
    plans: dict[Candidate, Plan] = field(default_factory=dict)
    bounds: dict[Candidate, float] = field(default_factory=dict)
    paths: dict[Candidate, str] = field(default_factory=dict)
    round: int = 0

    def begin(self) -> None:
        """The bounds of formulas, and the plans of the cache. Raises InfeasibleError when nothing fits its cap."""
        errors = []
        for candidate in self.space.candidates:
            try:
                candidate.problem.check_feasible()
            except InfeasibleError as error:
                self.bounds[candidate] = math.inf
                errors.append(error)
                continue
            plan = None if self.cache is None else self.cache.load(candidate.problem)
            if plan is None:
                self.bounds[candidate] = best_bound(candidate.problem, deadline=time.monotonic()).lower_bound
            else:
                self.take(candidate, plan)
        if len(errors) == len(self.space.candidates):
            raise min(errors, key=lambda error: max(error.least_cap or (math.inf,)))

    def take(self, candidate: Candidate, plan: Plan) -> None:
        """Keep a plan if it is better than the candidate's own, and its bound in any case."""
        self.bounds[candidate] = max(plan.certificate.lower_bound, self.bounds.get(candidate, 0.0))
        known = self.plans.get(candidate)
        if known is None or (plan.value, plan.gap) <= (known.value, known.gap):
            self.plans[candidate] = plan
            if self.cache is not None:
                self.paths[candidate] = self.cache.save(plan)

    def rounds(self, jobs: int, pool: Pool | None, options: dict[str, Any]) -> None:
        """Search until nothing is open or the time is up."""
        widest = len(self.open())
        while (candidates := self.open()) and self.deadline - time.monotonic() > LEAST:
            candidates.sort(key=self.distance)
            candidates = candidates[: max(jobs, math.ceil(widest / 2**self.round))]
            left = (self.deadline - time.monotonic()) / max(1, ROUNDS - self.round)
            limit = left / math.ceil(len(candidates) / jobs)
            self.round += 1
            tasks = self.tasks(candidates, limit, options | {"seed": options["seed"] + self.round})
            for done, (candidate, plan) in enumerate(_outcomes(tasks, pool, jobs), 1):
                self.take(candidate, plan)
                self.tell(done, len(candidates))
                if INTERRUPTED in plan.warnings:
                    raise KeyboardInterrupt

    def tasks(self, candidates: list[Candidate], limit: float, options: dict[str, Any]) -> Iterator[_Task]:
        """One search for each that is still open when its turn comes, from the best that is known and fits."""
        for candidate in candidates:
            left = self.deadline - time.monotonic()
            if left < LEAST:
                return
            if candidate not in self.plans and self.beaten(candidate):
                continue
            starts = [plan for other, plan in self.plans.items() if other.family == candidate.family]
            fitting = [plan for plan in starts if max(plan.timeline.peak_memory) <= candidate.cap * (1 + 1e-9)]
            start = self.plans.get(candidate) or min(fitting, key=lambda plan: plan.value, default=None)
            yield _Task(candidate, {"time_limit": max(LEAST, min(limit, left)), "start": start, **options})

    def open(self) -> list[Candidate]:
        """Those whose searches may still find a plan for the front."""
        return [
            candidate
            for candidate in self.space.candidates
            if self.bound(candidate) < math.inf
            and not (candidate in self.plans and self.plans[candidate].value <= self.bound(candidate) * (1 + 1e-9))
            and not self.beaten(candidate)
        ]

    def bound(self, candidate: Candidate) -> float:
        """The best bound of a candidate: a bound under a larger cap holds under a smaller one as well."""
        family = candidate.family
        return max(b for c, b in self.bounds.items() if c.family == family and c.cap >= candidate.cap)

    def beaten(self, candidate: Candidate) -> bool:
        """True when a plan of another candidate is within the cap and at least as fast as the bound."""
        return self.best(candidate.cap, but=candidate) <= self.bound(candidate) * (1 + 1e-9)

    def best(self, cap: float, but: Candidate | None = None) -> float:
        """The least time of a plan that holds at most `cap`."""
        plans = (plan for candidate, plan in self.plans.items() if candidate != but)
        fitting = (plan.value for plan in plans if max(plan.timeline.peak_memory) <= cap * (1 + 1e-9))
        return min(fitting, default=math.inf)

    def distance(self, candidate: Candidate) -> float:
        """How far above the front a candidate's plan is, as a ratio; the less the more promising."""
        plan = self.plans.get(candidate)
        return 0.0 if plan is None else plan.value / min(self.best(candidate.cap), plan.value)

    def front(self, seconds: float, interrupted: bool) -> Front:
        points = []
        for candidate, plan in self.plans.items():
            least = floor(max(plan.timeline.peak_memory), self.bounds)
            points.append(Point(candidate, plan, least, self.paths.get(candidate)))
        best, rest = pareto(points)
        infeasible = sum(bound == math.inf for bound in self.bounds.values())
        dropped = sum(c not in self.plans and b < math.inf and self.beaten(c) for c, b in self.bounds.items())
        return Front(self.space, tuple(best), tuple(rest), infeasible, dropped, seconds, interrupted)

    def tell(self, searches: int, planned: int) -> None:
        if self.report is not None:
            found = self.front(0.0, False)
            proved = sum(point.proved for point in found.points)
            self.report(Status(self.round, searches, planned, found.dropped, len(found.points), proved))


class _Task(NamedTuple):
    candidate: Candidate
    options: dict[str, Any]


def _search(task: _Task) -> tuple[Candidate, Plan]:
    return task.candidate, search(task.candidate.problem, **task.options)


def _outcomes(tasks: Iterator[_Task], pool: Pool | None, jobs: int) -> Iterator[tuple[Candidate, Plan]]:
    """The searches' results as they come; a task is taken only when a process is free for it."""
    if pool is None:
        yield from map(_search, tasks)
        return
    done: SimpleQueue[Any] = SimpleQueue()
    running = 0
    for task in tasks:
        pool.apply_async(_search, (task,), callback=done.put, error_callback=done.put)
        running += 1
        if running == jobs:
            yield _result(done.get())
            running -= 1
    for _ in range(running):
        yield _result(done.get())


def _result(outcome: Any) -> tuple[Candidate, Plan]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@contextmanager
def _processes(jobs: int) -> Iterator[Pool | None]:
    """Processes for searches; None when this one alone does them all."""
    if jobs == 1:
        yield None
        return
    with multiprocessing.Pool(jobs, _prepare) as pool:  # which are terminated at the end
        yield pool


def _prepare() -> None:
    """An interrupt is for the parent; to be terminated is to leave in order, so that a running solver is ended too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
