"""Slack: how far every step can slip without harm to the objective."""

from __future__ import annotations

from .arrival import Arrival
from .simulation import Timeline

_ROUNDING = 1e-9


def slacks(timeline: Timeline, arrivals: list[list[tuple[Arrival, ...]]]) -> list[list[float]]:
    """By device and index, the time by which a step alone may be late while the objective keeps its value.

    The backward pass of the critical path method (Kelley and Walker 1959) over the orders and the dependencies: a
    step must end before the latest start of the next one on its device, and before that of each step that uses its
    result, less the transfer. Under `makespan` the last ends are bound by the last end of all, under `span` each
    device's by its first start plus the span, with the first starts held where they are.
    """
    starts, ends = timeline.starts, timeline.ends
    if timeline.problem.objective == "span":
        horizons = [begun[0] + timeline.span if begun else 0.0 for begun in starts]
    else:
        horizons = [max((ended[-1] for ended in ends if ended), default=0.0)] * len(ends)
    latest = [[horizon] * len(ended) for horizon, ended in zip(horizons, ends, strict=True)]
    for device, index in reversed(timeline.execution.sequence):
        last = latest[device][index]
        start = last - (ends[device][index] - starts[device][index])
        if index and start < latest[device][index - 1]:
            latest[device][index - 1] = start
        for need in arrivals[device][index]:
            if start - need.transfer < latest[need.device][need.step]:
                latest[need.device][need.step] = start - need.transfer
    scale = _ROUNDING * max(horizons, default=0.0)
    return [
        [slip if (slip := last - end) > scale else 0.0 for last, end in zip(limits, ended, strict=True)]
        for limits, ended in zip(latest, ends, strict=True)
    ]
