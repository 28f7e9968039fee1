"""Balance: the split of a model's layers into stages whose searched schedule takes the least time."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .compiler.errors import InfeasibleError
from .compiler.interchange import layout
from .compiler.interchange.layer_files import read_layers
from .compiler.layers import Layers
from .compiler.partition import split
from .compiler.plan import Plan
from .compiler.problem import Problem
from .compiler.profile import Profile
from .compiler.recomputation import Recompute
from .request import PlacementLike, place
from .solver.bounds import best_bound
from .solver.search import INTERRUPTED, search
from .summary import table

MOVING = 0.6
"""The part of the time in which boundaries between stages are moved; the rest is for the schedule of the best split."""

GLANCE = 0.02
"""The part of the time for the schedule of one split."""

_LONGEST = 36
"""Of the names of a stage's layers so much is shown."""


@dataclass(frozen=True)
class Balance:
    """A split of layers into stages, stage s ending before layer `ends[s]`, and the plan found for it.

    `tried` splits were searched; `first` is the value of the one that makes the longest stage shortest.
    """

    layers: Layers
    ends: tuple[int, ...]
    plan: Plan
    first: float
    tried: int

    @property
    def profile(self) -> Profile:
        """The costs of the stages."""
        return self.layers.profile(self.ends)

    @property
    def modules(self) -> list[list[str]]:
        """The names of each stage's layers, as torchtitan's `module_fqns_per_model_part` lists them."""
        return [[layer.name for layer in held] for held in self.layers.stages(self.ends)]

    @property
    def layout(self) -> str | None:
        """Megatron-LM's layout string; None where a layer has no letter."""
        if not all(layer.letter for layer in self.layers.layers):
            return None
        return layout.write(["".join(layer.letter for layer in held) for held in self.layers.stages(self.ends)])

    def __str__(self) -> str:
        """The stages as a table, the plan, and what was found out about splits."""
        stages = self.profile.stages
        works = [stage.forward + stage.fused for stage in stages]
        mean = statistics.fmean(works)
        rows = []
        for number, (stage, names, work) in enumerate(zip(stages, self.modules, works, strict=True)):
            share = f"{work / mean:.0%}" if mean else "-"
            words = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            held = f"{stage.memory.forward:g}", f"{stage.static_memory:g}"
            rows.append([str(number), str(len(names)), f"{work:.4g}", share, *held, words[:_LONGEST]])
        saved = 1 - self.plan.value / self.first if self.first else 0.0
        lines = [
            table(["stage", "layers", "work", "of mean", "memory", "static", "from to"], rows),
            "",
            str(self.plan),
            f"  splits       {self.tried} searched; the best takes {saved:.2%} less than was found for the first",
        ]
        if self.layout is not None:
            lines.append(f"  layout       {self.layout}")
        lines.append("  modules      --json lists those of each stage, as torchtitan's module_fqns_per_model_part")
        return "\n".join(lines + [f"  note         {note}" for note in self.layers.notes])

    def as_json(self) -> dict[str, Any]:
        return self.plan.as_json() | {
            "ends": list(self.ends),
            "modules": self.modules,
            "layout": self.layout,
            "warnings": [*self.layers.notes, *self.plan.warnings],
            "first_value": self.first,
            "tried": self.tried,
        }


def balance(
    layers: Layers | str | os.PathLike[str],
    *,
    microbatches: int,
    devices: int | None = None,
    placement: PlacementLike | None = None,
    chunks: int | None = None,
    memory_cap: float | Sequence[float] | None = None,
    objective: str = "makespan",
    backward: str = "any",
    recompute: Recompute = "none",
    backend: str = "cbc",
    time_limit: float = 30.0,
    seed: int = 0,
    report: Callable[[float, float | None, float | None], None] | None = None,
) -> Balance:
    """Split layers, in their order, into the stages of a placement so that the schedule found takes the least time.

    `layers` is a `Layers` or a file that `read_layers` understands. From the split whose longest stage is shortest,
    boundaries are moved one layer at a time, while a short search finds a better schedule; splits whose bound says
    that they are no better are not searched. An interrupt (Ctrl-C) keeps the best split so far. The other arguments
    are those of `compile`.
    Raises InputError when the request cannot be understood or there are more stages than layers, InfeasibleError when
    no split was found that fits the caps.
    """
    started = time.monotonic()
    model = layers if isinstance(layers, Layers) else read_layers(layers)
    where = place(placement=placement, devices=devices, chunks=chunks)
    cap = tuple(memory_cap) if isinstance(memory_cap, Sequence) else memory_cap

    def problem(ends: tuple[int, ...]) -> Problem:
        return Problem(model.profile(ends), where, microbatches, cap, objective, backward, recompute)

    options: dict[str, Any] = {"backend": backend, "seed": seed}
    best = split(model, where, problem(split(model, where)).caps)
    plan = search(problem(best), time_limit=GLANCE * time_limit, **options)
    first, tried, known = plan.value, 1, {best}
    try:
        while time.monotonic() < started + MOVING * time_limit and INTERRUPTED not in plan.warnings:
            ends = _next(model, best, known)
            if ends is None:
                break
            known.add(ends)
            if _bound(problem(ends)) >= plan.value:
                continue
            found = search(problem(ends), time_limit=GLANCE * time_limit, **options)
            tried += 1
            if found.value < plan.value * (1 - 1e-9):
                best, plan = ends, found
            if report is not None:
                report(time.monotonic() - started, plan.value, None)
            if INTERRUPTED in found.warnings:
                raise KeyboardInterrupt
        left = max(GLANCE * time_limit, started + time_limit - time.monotonic())
        if INTERRUPTED not in plan.warnings:
            plan = search(plan.problem, time_limit=left, start=plan, report=report, **options)
    except KeyboardInterrupt:
        if INTERRUPTED not in plan.warnings:
            plan = replace(plan, warnings=(*plan.warnings, INTERRUPTED))
    return Balance(model, best, plan, first, tried)


def _bound(problem: Problem) -> float:
    """What formulas say; infinite where no schedule fits the caps."""
    try:
        problem.check_feasible()
    except InfeasibleError:
        return math.inf
    return best_bound(problem, deadline=time.monotonic()).lower_bound


def _next(layers: Layers, ends: tuple[int, ...], known: set[tuple[int, ...]]) -> tuple[int, ...] | None:
    """A split that differs in one boundary and was not tried yet: the one whose longest stage is shortest."""

    def longest(moved: tuple[int, ...]) -> float:
        return max(stage.forward + stage.fused for stage in layers.profile(moved).stages)

    return min((moved for moved in _moved(layers, ends) if moved not in known), key=longest, default=None)


def _moved(layers: Layers, ends: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Each boundary moved by one layer that takes time, to either side, as far as no stage is left empty."""
    edges = (0, *ends)
    for stage in range(len(ends) - 1):
        low, end, high = edges[stage] + 1, edges[stage + 1], edges[stage + 2] - 1
        for step in (-1, 1):
            place = end + step
            while low <= place <= high:
                crossed = layers.layers[place if step < 0 else place - 1]
                if crossed.forward + crossed.fused:
                    yield (*ends[:stage], place, *ends[stage + 1 :])
                    break
                place += step
