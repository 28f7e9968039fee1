"""Comparison: every named schedule and the search on one problem, the work of each device held fixed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from .compiler.errors import InputError
from .compiler.named import NAMED, PLACEMENTS, named_schedule
from .compiler.placement import Placement
from .compiler.problem import Problem
from .compiler.profile import Memory, Profile, Stage
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


def divide(profile: Profile, old: Placement, new: Placement) -> Profile:
    """The profile with the stages of another placement on as many devices, the work of each device held fixed.

    A device's costs are shared equally between its new stages: with v chunks each has 1/v of the times and the
    memory. What stages send to each other stays as large as it was. A bidirectional placement keeps one share of the
    model per device, though each is held twice.
    """
    held = [(device,) for device in range(old.devices)] if old.bidirectional else old.copies
    shares = [[profile.stages[stage] for stage in stages] for stages in held]
    counts = [new.down.count(device) for device in range(new.devices)]
    pair = profile.overlapped_pair
    if isinstance(pair, tuple):
        means = [math.fsum(pair[stage] for stage in stages) / len(stages) for stages in held]
        pair = tuple(means[device] for device in new.down)
    stages = tuple(_merge(shares[device], counts[device]) for device in new.down)
    return msgspec.structs.replace(profile, stages=stages, overlapped_pair=pair)


def _merge(stages: list[Stage], parts: int) -> Stage:
    """One of `parts` equal parts of these stages together."""

    def total(numbers: list[float]) -> float:
        return math.fsum(numbers) / parts

    fused = any(stage.backward is not None for stage in stages)
    return Stage(
        forward=total([stage.forward for stage in stages]),
        backward_input=total([stage.backward_input for stage in stages]),
        backward_weight=total([stage.backward_weight for stage in stages]),
        backward=total([stage.fused for stage in stages]) if fused else None,
        memory=Memory(
            forward=total([stage.memory.forward for stage in stages]),
            backward_input=total([stage.memory.backward_input for stage in stages]),
            backward_weight=total([stage.memory.backward_weight for stage in stages]),
        ),
        static_memory=total([stage.static_memory for stage in stages]),
        output_bytes=max(stage.output_bytes for stage in stages),
    )
