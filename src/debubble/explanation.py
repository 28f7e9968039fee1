"""Explanation: why a plan takes as long as it does, what would make it faster, and how it bears jitter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace as with_changes

from .compiler.analysis import Analysis
from .compiler.errors import InputError
from .compiler.operation import parts
from .compiler.plan import Plan
from .compiler.problem import Problem
from .compiler.profile import Link, Stage
from .compiler.robustness import Jitter, deviations
from .compiler.simulation import Timeline, simulate
from .solver.search import certified, search

FASTER_LINK = 0.9
"""What a transfer takes, by the question what a ten percent faster link would give."""
RUNS = 1000
"""How often a schedule is executed with random durations."""
ALLOWANCES = (0.0, 0.5, 1.0, 2.0, 4.0)
"""How much longer transfers are taken to be, in standard deviations of a forward, by the searches for robust orders."""


@dataclass(frozen=True)
class Change:
    """What the search finds for the problem with one thing changed, and the lower bound there."""

    name: str
    value: float
    lower_bound: float


@dataclass(frozen=True)
class Bearing:
    """How a schedule bears jitter: percentiles of its objective in `runs` executions with random durations, of which
    `spread` is the largest relative standard deviation."""

    spread: float
    runs: int
    p50: float
    p95: float


@dataclass(frozen=True)
class Explanation:
    """What is known of a plan beyond its value.

    `critical` counts the steps of the critical path by kind and the transfers between them; `full` lists the devices
    that reach their cap.
    `found` is the best value a search of the same length found for the unchanged problem.
    """

    analysis: Analysis
    full: list[int]
    critical: Counter[str]
    found: float
    changes: list[Change]
    jitter: Bearing

    @property
    def plan(self) -> Plan:
        """The plan that is explained."""
        return self.analysis.plan

    @property
    def tight(self) -> Counter[str]:
        """The operations without slack by kind."""
        return sum(self.analysis.tight, Counter())

    def as_json(self) -> dict[str, Any]:
        """The keys that `debubble explain --json` prints."""
        certificate = self.plan.certificate
        return {
            "objective": self.plan.problem.objective,
            "value": self.plan.value,
            "lower_bound": certificate.lower_bound,
            "bound": certificate.name,
            "reason": certificate.reason,
            "idle": self.analysis.idle,
            "answer": self.analysis.sentences(),
            "devices_at_cap": self.full,
            "critical_path": dict(self.critical),
            "no_slack": dict(self.tight),
            "searched_again": self.found,
            "changes": [
                {"change": change.name, "value": change.value, "lower_bound": change.lower_bound}
                for change in self.changes
            ],
            "jitter": {
                "spread": self.jitter.spread,
                "runs": self.jitter.runs,
                "p50": self.jitter.p50,
                "p95": self.jitter.p95,
            },
        }


def explain(plan: Plan, *, spread: float | None = None, time_limit: float = 5.0, seed: int = 0) -> Explanation:
    """Say what binds a plan, and find out what would help by searching the changed problems, each for `time_limit`
    seconds. `spread` is the relative standard deviation of the durations under jitter, by default what the profile
    measured, or 5 %.

    Raises InputError for a spread that is negative or above 1.
    """
    _check(spread)
    timeline, problem = plan.timeline, plan.problem
    analysis = Analysis(plan)
    critical = Counter(operation.kind for _, step, _, _ in analysis.path for operation in parts(step))
    critical["transfers"] = sum(first[0] != second[0] for first, second in pairwise(analysis.path))
    again = plan if plan.gap == 0 else search(problem, time_limit=time_limit, seed=seed, start=plan)
    return Explanation(
        analysis,
        [device for device, peak in enumerate(timeline.peak_memory) if _full(problem, device, peak)],
        critical,
        again.value,
        [_changed(name, changed, again, time_limit, seed) for name, changed in changed_problems(problem)],
        bearing(timeline, spread=spread, seed=seed),
    )


def robust(plan: Plan, *, spread: float | None = None, time_limit: float = 30.0, seed: int = 0) -> Plan:
    """The order with the least 95th percentile under jitter: the plan's own, or one that a search finds when it takes
    transfers to be slower than they are, which leaves slack where results of other devices are awaited.

    Raises InputError for a spread that is negative or above 1.
    """
    _check(spread)
    problem = plan.problem
    jitter = Jitter(problem, spread, runs=RUNS, seed=seed)
    forwards = np.array([stage.forward for stage in problem.profile.stages])
    deviation = float(np.mean(deviations(problem, spread)[0] * forwards))
    schedules = [plan.schedule]
    for allowance in ALLOWANCES:
        slower = with_links(problem, lambda transfer, extra=allowance * deviation: transfer + extra)  # type: ignore[misc]
        found = search(slower, time_limit=time_limit / len(ALLOWANCES), seed=seed)
        schedules.append(replace(found.schedule, method=f"robust ({found.schedule.method})"))
    best = min(schedules, key=lambda schedule: np.percentile(jitter.values(simulate(problem, schedule)), 95))
    return plan if best is plan.schedule else certified(problem, best)


def changed_problems(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """The problem with one thing changed at a time: more memory, a faster link, balanced stages."""
    profile = problem.profile
    if not all(map(math.isinf, problem.caps)):
        more = max(stage.memory.forward for stage in profile.stages)
        caps = tuple(cap + more for cap in problem.caps)
        yield f"{more:g} more memory on every device (one activation)", replace(problem, memory_cap=caps)
    if profile.comm:
        yield "a link 10 % faster", with_links(problem, lambda transfer: FASTER_LINK * transfer)
    level = balanced(problem)
    if not all(map(_alike, profile.stages, level.profile.stages)):
        yield "the same work in balanced stages", level


def with_links(problem: Problem, change: Callable[[float], float]) -> Problem:
    """The problem with a change to the time of every transfer (of a link, to its latency and its time per byte)."""
    comm = problem.profile.comm
    if isinstance(comm, Link):
        unit = change(1 / comm.bandwidth) - change(0.0)
        comm = Link(latency=change(comm.latency), bandwidth=1 / unit)
    elif isinstance(comm, tuple):
        comm = tuple(
            tuple(time if source == target else change(time) for target, time in enumerate(row))
            for source, row in enumerate(comm)
        )
    else:
        comm = change(comm)
    return replace(problem, profile=with_changes(problem.profile, comm=comm))


def balanced(problem: Problem) -> Problem:
    """The problem with the times of all stages levelled: every device has the same, spread evenly over its stages."""
    stages = problem.profile.stages
    owners = problem.placement.down
    shares = [1 / owners.count(device) for device in owners]
    whole = math.fsum(shares)
    totals = {
        key: math.fsum(getattr(stage, key) for stage in stages)
        for key in ("forward", "backward_input", "backward_weight", "fused")
    }
    levelled = []
    for stage, share in zip(stages, shares, strict=True):
        times = {key: total * share / whole for key, total in totals.items()}
        levelled.append(with_changes(stage, backward=times.pop("fused"), **times))
    return replace(problem, profile=with_changes(problem.profile, stages=tuple(levelled)))


def _alike(stage: Stage, other: Stage) -> bool:
    """True when two stages take the same times."""
    keys = ("forward", "backward_input", "backward_weight", "fused")
    return all(math.isclose(getattr(stage, key), getattr(other, key), rel_tol=1e-9) for key in keys)


def _changed(name: str, problem: Problem, start: Plan, time_limit: float, seed: int) -> Change:
    """What a search finds that begins with the best order of the unchanged problem."""
    plan = search(problem, time_limit=time_limit, seed=seed, start=start)
    return Change(name, plan.value, plan.certificate.lower_bound)


def bearing(timeline: Timeline, *, spread: float | None = None, seed: int = 0) -> Bearing:
    """How a schedule bears jitter."""
    jitter = Jitter(timeline.problem, spread, runs=RUNS, seed=seed)
    p50, p95 = np.percentile(jitter.values(timeline), (50, 95))
    largest = float(deviations(timeline.problem, spread).max())
    return Bearing(largest, jitter.runs, float(p50), float(p95))


def _full(problem: Problem, device: int, peak: float) -> bool:
    """True when nothing that a stage of the device holds would still fit under its cap."""
    least = min(problem.profile.stages[stage].memory.forward for stage in problem.placement.copies[device])
    return not problem.within_cap(device, peak + least)


def _check(spread: float | None) -> None:
    if spread is not None and not 0 <= spread <= 1:
        raise InputError(f"the spread is a share of the durations, between 0 and 1, not {spread:g}", code="bad-number")
