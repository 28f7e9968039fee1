"""Comparison: every named schedule and the search on one problem, the work of each device held fixed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .compiler.division import divide
from .compiler.errors import InputError
from .compiler.named import NAMED, PLACEMENTS, named_schedule
from .compiler.operation import Pair
from .compiler.placement import Placement
from .compiler.problem import Problem
from .compiler.schedule import Schedule
from .compiler.simulation import Timeline, simulate
from .compiler.wording import counted
from .request import place
from .solver.bounds import best_bound
from .solver.search import INTERRUPTED, search

BOUND_SHARE = 0.1
"""The part of the time limit in which a bound is sought on each placement but the problem's own."""


@dataclass(frozen=True)
class Row:
    """One schedule of a comparison: a named one, or what the "search" found.

    `lower_bound` holds for every schedule on the same placement that keeps the caps; it is 0 where an interrupt left no
    time to seek one. `finalise` is what each device does after its last operation (an all-reduce, the optimizer), where
    the request says so.
    """

    name: str
    timeline: Timeline
    lower_bound: float
    finalise: tuple[float, ...] = ()

    @property
    def fits(self) -> bool:
        problem = self.timeline.problem
        return all(problem.within_cap(device, peak) for device, peak in enumerate(self.timeline.peak_memory))

    @property
    def gap(self) -> float | None:
        """(value - bound) / bound; None over the caps, where the bound says nothing, and when nothing takes time."""
        return max(0.0, self.timeline.value / self.lower_bound - 1) if self.fits and self.lower_bound else None

    @property
    def transfers(self) -> int:
        """How many activations and gradients go from one device to another in a step."""
        problem = self.timeline.problem
        count = 0
        for microbatch in range(problem.microbatches):
            owners = problem.placement.owners(microbatch, problem.microbatches)
            count += 2 * sum(a != b for a, b in pairwise(owners))
        return count

    @property
    def weights(self) -> float:
        """How many copies of the model's weights all devices hold together: 2 in a bidirectional placement."""
        placement = self.timeline.problem.placement
        return sum(map(len, placement.copies)) / placement.stages

    @property
    def pairs(self) -> bool:
        """True when a forward and a backward overlap somewhere."""
        return any(isinstance(step, Pair) for order in self.timeline.schedule.orders for step in order)

    @property
    def step(self) -> float | None:
        """From the first start until every device has also finalised, each for itself; None where that is not given."""
        if not self.finalise:
            return None
        timeline = self.timeline
        begin = min(starts[0] for starts in timeline.starts)
        return max(ends[-1] + more for ends, more in zip(timeline.ends, self.finalise, strict=True)) - begin

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
            "transfers": self.transfers,
            "weights": self.weights,
            "step": self.step,
            "fits": self.fits,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
        }


@dataclass(frozen=True)
class Comparison:
    """Schedules side by side: the best first, those over the caps last. After an interrupt the search may be missing,
    and bounds."""

    rows: list[Row]
    interrupted: bool


def compare(
    problem: Problem,
    *,
    time_limit: float = 30.0,
    group_size: int | None = None,
    finalise: float | Sequence[float] | None = None,
    **options: Any,
) -> Comparison:
    """Every named schedule that exists for these devices, and what the search finds on the problem's own placement.

    Best first, those over the caps last. With a `group_size` interleaved 1F1B is there a second time, with groups of
    so many micro-batches. `finalise` is what devices do after their last operation, one number or one per device. The
    `options` are those of `solver.search.search`, which gets `time_limit` seconds; the bound on every other placement
    gets a tenth of that. An interrupt (Ctrl-C) ends both and leaves what there is.

    Raises InputError when the group size or the numbers to finalise do not fit.
    """
    after = tuple(finalise) if isinstance(finalise, Sequence) else (finalise,) * problem.devices
    if len(after) != problem.devices:
        raise InputError(
            f"{counted(len(after), 'time')} to finalise for {counted(problem.devices, 'device')}",
            hint="one, or one per device",
        )
    closing = tuple(more for more in after if more is not None)
    drawn = list(_drawn(problem, group_size))
    rows: list[Row] = []
    bounds: dict[Placement, float] = {}
    interrupted = False
    try:
        plan = search(problem, time_limit=time_limit, **options)
        interrupted = INTERRUPTED in plan.warnings
        bounds[problem.placement] = plan.certificate.lower_bound
        rows.append(Row("search", plan.timeline, bounds[problem.placement], closing))
        for own in (own for _, own, _ in drawn if not interrupted):
            if own.placement not in bounds:
                deadline = time.monotonic() + BOUND_SHARE * time_limit
                bounds[own.placement] = best_bound(own, deadline=deadline).lower_bound
    except KeyboardInterrupt:
        interrupted = True
    rows += [Row(name, simulate(own, order), bounds.get(own.placement, 0.0), closing) for name, own, order in drawn]
    return Comparison(sorted(rows, key=lambda row: (not row.fits, row.timeline.value)), interrupted)


def _drawn(problem: Problem, group_size: int | None) -> Iterator[tuple[str, Problem, Schedule]]:
    """Name, problem and schedule of everything that is drawn for these devices, each on its own placement."""
    for name in NAMED:
        try:
            own = on_placement(problem, PLACEMENTS.get(name, "linear"))
            yield name, own, named_schedule(name, own)
        except InputError:
            continue
    if group_size is not None:
        own = on_placement(problem, PLACEMENTS["interleaved"])
        yield f"interleaved/{group_size}", own, named_schedule("interleaved", own, group_size=group_size)


def on_placement(problem: Problem, name: str) -> Problem:
    """The same devices, work per device, caps and objective on the placement called `name`."""
    if problem.placement.kind == name:
        return problem
    placement = place(placement=name, devices=problem.devices, chunks=None)
    return replace(problem, placement=placement, profile=divide(problem.profile, problem.placement, placement))
