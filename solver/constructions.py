"""Constructions: feasible schedules by list scheduling rules, best ideas first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from ..compiler.named.classic import naive
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .dispatch import Rule, dispatch
from .evaluation import Model


def construct(problem: Problem, *, seed: int = 0, deadline: float | None = None) -> Iterator[Schedule]:
    """Feasible schedules of a problem that passes `check_feasible`, best ideas first, until `deadline` (monotonic).

    The first is always given.
    """
    model = Model(problem)
    found = False
    for name, rule in rules(model):
        if found and deadline is not None and time.monotonic() >= deadline:
            return
        orders = dispatch(model, rule)
        if orders is not None:
            found = True
            yield model.schedule(orders, name)
    yield naive(problem)


def rules(model: Model) -> Iterator[tuple[str, Rule]]:
    """The list scheduling rules, by name."""
    lanes, depth, stages, size = model.lanes, model.depth, model.stages, model.size
    filler = [3e9 + 1e3 * rank - lane % stages for lane in range(lanes) for rank in range(depth)]
    rank_first = [1e3 * rank for lane in range(lanes) for rank in range(depth)]
    for turn in (0, 1):
        late = [(1e3 * rank - (lane % stages if turn == 0 else 0)) for lane in range(lanes) for rank in range(depth)]
        early = [1e3 * rank + lane % stages for lane in range(lanes) for rank in range(depth)]
        for w in (0.0, 0.5, 1.0, 3.0, math.inf):
            for p in (math.inf, 0.0, 1.0):
                yield (
                    f"backward-first {turn} {w} {p}",
                    Rule([1e9 + x for x in late] + early + filler + early, patience=p, filler=w),
                )
                yield (
                    f"forward-first {turn} {w} {p}",
                    Rule(late + [1e9 + x for x in early] + filler + early, patience=p, filler=w),
                )
