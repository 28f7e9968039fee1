"""Robustness: what becomes of a schedule when operations do not take exactly what was measured."""

from __future__ import annotations

import math

import numpy as np
from msgspec import UnsetType

from .arrival import arrivals
from .operation import KINDS, Operation, parts
from .problem import Problem
from .simulation import Timeline

MAX_DURATIONS = 20_000_000
"""The most random durations that are held at a time; what needs more gets fewer runs."""


_NAMES = ("forward", "backward_input", "backward_weight", "backward")  # of KINDS, in a profile

QUARTILES = 1.349
"""The distance between the quartiles of a normal distribution, in standard deviations."""

UNMEASURED = 0.05
"""The relative deviation of durations whose spread a profile does not give."""


def deviations(problem: Problem, spread: float | None = None) -> np.ndarray:
    """By kind and stage, the relative standard deviation of durations: `spread`, or what the profile measured."""
    if spread is not None:
        return np.full((len(KINDS), problem.stages), spread)
    measured = [
        [UNMEASURED] * len(KINDS)
        if isinstance(stage.spread, UnsetType)
        else [getattr(stage.spread, name) / QUARTILES for name in _NAMES]
        for stage in problem.profile.stages
    ]
    return np.array(measured).T


class Jitter:
    """Random factors on the duration of every operation, the same for every schedule of a problem.

    The factors are lognormal with median 1 and the relative standard deviations of `deviations`, independent of each
    other, so that orders are compared under the same luck. Transfers take what they were measured to take.
    """

    def __init__(self, problem: Problem, spread: float | None = None, *, runs: int, seed: int) -> None:
        size = (len(KINDS), problem.stages, problem.microbatches)
        self.runs = max(1, min(runs, MAX_DURATIONS // math.prod(size)))
        sigma = np.sqrt(np.log1p(deviations(problem, spread) ** 2))[:, :, None, None]
        self._factors = np.exp(sigma * np.random.default_rng(seed).standard_normal((*size, self.runs)))

    def factors(self, operation: Operation) -> np.ndarray:
        """One factor per run."""
        return self._factors[KINDS.index(operation.kind), operation.stage, operation.microbatch]

    def values(self, timeline: Timeline) -> np.ndarray:
        """The objective of a schedule in every run, its orders kept and every step as early as it can be."""
        problem, orders = timeline.problem, timeline.schedule.orders
        needs = arrivals(timeline)
        ends: list[list[np.ndarray]] = [[] for _ in orders]
        begun: list[np.ndarray] = [np.zeros(self.runs) for _ in orders]
        for device, index in timeline.execution.sequence:
            step = orders[device][index]
            start = ends[device][index - 1] if index else np.zeros(self.runs)
            for need in needs[device][index]:
                start = np.maximum(start, ends[need.device][need.step] + need.transfer)
            if not index:
                begun[device] = start
            operations = parts(step)
            alone = [problem.duration(operation) for operation in operations]
            stretch = sum(time * self.factors(operation) for time, operation in zip(alone, operations, strict=True))
            scale = problem.duration(step) / sum(alone) if sum(alone) else 0.0
            ends[device].append(start + scale * stretch)
        last = [ended[-1] if ended else np.zeros(self.runs) for ended in ends]
        if problem.objective == "span":
            return np.max([end - first for end, first in zip(last, begun, strict=True)], axis=0)
        return np.max(last, axis=0) - np.min([b for b, ended in zip(begun, ends, strict=True) if ended], axis=0)
