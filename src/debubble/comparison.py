"""Comparison: every named schedule and the search on one problem, the work of each device held fixed."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from .compiler.division import divide
from .compiler.errors import InputError
from .compiler.named import NAMED, PLACEMENTS, named_schedule
from .compiler.problem import Problem
from .compiler.simulation import Timeline, simulate
from .request import place
from .solver.bounds import best_bound
from .solver.search import search

BOUND_SHARE = 0.1
"""The part of the time limit in which a bound is sought on each placement but the problem's own."""


@dataclass(frozen=True)
class Row:
    """One schedule of a comparison: a named one, or what the "search" found.

    `lower_bound` holds for every schedule on the same placement that keeps the caps.
    """

    name: str
    timeline: Timeline
    lower_bound: float

    @property
    def fits(self) -> bool:
        problem = self.timeline.problem
        return all(problem.within_cap(device, peak) for device, peak in enumerate(self.timeline.peak_memory))

    @property
    def gap(self) -> float | None:
        """(value - bound) / bound; None over the caps, where the bound says nothing, and when nothing takes time."""
        return max(0.0, self.timeline.value / self.lower_bound - 1) if self.fits and self.lower_bound else None

    def as_json(self) -> dict[str, Any]:
        timeline = self.timeline
        return {
            "schedule": self.name,
            "method": timeline.schedule.method,
            "placement": str(timeline.problem.placement),
            "value": timeline.value,
            "makespan": timeline.makespan,
            "span": timeline.span,
            "bubble_ratio": timeline.bubble_ratio(),
            "idle_fraction": timeline.idle_fraction,
            "peak_memory": timeline.peak_memory,
            "fits": self.fits,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
        }


def compare(problem: Problem, *, time_limit: float = 30.0, **options: Any) -> list[Row]:
    """Every named schedule that exists for these devices, and what the search finds on the problem's own placement.

    Best first, those over the caps last. The `options` are those of `solver.search.search`, which gets `time_limit`
    seconds; the bound on every other placement gets a tenth of that.
    """
    plan = search(problem, time_limit=time_limit, **options)
    bounds = {problem.placement: plan.certificate.lower_bound}
    rows = [Row("search", plan.timeline, bounds[problem.placement])]
    for name in NAMED:
        try:
            own = on_placement(problem, PLACEMENTS.get(name, "linear"))
            timeline = simulate(own, named_schedule(name, own))
        except InputError:
            continue
        if own.placement not in bounds:
            deadline = time.monotonic() + BOUND_SHARE * time_limit
            bounds[own.placement] = best_bound(own, deadline=deadline).lower_bound
        rows.append(Row(name, timeline, bounds[own.placement]))
    return sorted(rows, key=lambda row: (not row.fits, row.timeline.value))


def on_placement(problem: Problem, name: str) -> Problem:
    """The same devices, work per device, caps and objective on the placement called `name`."""
    if problem.placement.kind == name:
        return problem
    placement = place(placement=name, devices=problem.devices, chunks=None)
    return replace(problem, placement=placement, profile=divide(problem.profile, problem.placement, placement))
