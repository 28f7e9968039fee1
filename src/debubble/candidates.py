"""Candidates: the problems that tuning chooses among."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .compiler.division import divide
from .compiler.errors import InputError
from .compiler.layers import Layers
from .compiler.named import named_schedule
from .compiler.numbers import check_count
from .compiler.partition import split
from .compiler.placement import Placement, linear
from .compiler.problem import Problem
from .compiler.profile import Profile
from .compiler.recomputation import UNITS, Recompute
from .compiler.scaling import between, scaled
from .compiler.simulation import Timeline, simulate
from .compiler.wording import counted
from .request import place

Model: TypeAlias = Profile | Layers
"""What each device has to do, or what layers there are to be gathered into stages."""

CAPS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Caps that are tried, as multiples of what 1F1B holds beyond static memory on the device that holds most."""


@dataclass(frozen=True)
class Candidate:
    """One problem among those that tuning chooses from. `cap` is the most that any device may hold.

    Candidates that differ in their caps alone are of one `family`.
    """

    problem: Problem
    cap: float

    @property
    def family(self) -> tuple[Placement, int, Recompute]:
        return self.problem.placement, self.problem.microbatches, self.problem.recompute

    @property
    def chunks(self) -> int:
        """The most stages for which a device holds weights, a copy for the other direction not counted."""
        down = self.problem.placement.down
        return max(map(down.count, down))

    def __str__(self) -> str:
        words = [str(self.problem.placement)]
        if self.chunks > 1:
            words.append(counted(self.chunks, "chunk"))
        words.append(counted(self.problem.microbatches, "micro-batch"))
        if self.problem.recompute != "none":
            words.append(f"recomputing {self.problem.recompute}")
        return ", ".join(words)


@dataclass(frozen=True)
class Space:
    """What tuning looks at: candidates by family and ascending cap, and 1F1B as the yardstick of them all."""

    candidates: tuple[Candidate, ...]
    yardstick: Timeline
    limited: bool
    """True when the request limits memory: then the fastest plan is the best."""
    notes: tuple[str, ...] = ()
    """What the numbers of the model include."""


def space(
    model: Model,
    *,
    microbatches: Sequence[int],
    devices: int | None = None,
    second: tuple[Model, int] | None = None,
    placements: Sequence[str] | None = None,
    chunks: Sequence[int] = (2,),
    caps: Sequence[float] = CAPS,
    memory_cap: float | Sequence[float] | None = None,
    recompute: Sequence[Recompute] | None = None,
    objective: str = "makespan",
    backward: str = "any",
) -> Space:
    """All candidates for a model, whose global batch and work are held fixed.

    A profile of one stage per device keeps the work of each device; layers, or a profile of more stages than `devices`,
    are gathered anew into the stages of each placement, so that the longest is short. The costs are those of the first
    number of `microbatches`. For another one they change in proportion to the size of a micro-batch, or on the line
    through a `second` model and its number. Every device may hold its part of `memory_cap` at most (default: the
    profile's); the `caps` are multiples of 1F1B's memory (see `CAPS`).
    By default `placements` are those of which the model knows what they hold: linear, loop and v, and bidirectional
    where there is static memory, which it holds twice. `recompute` is then none, and all where the model tells the
    input of every stage, which it keeps.
    Raises InputError when the parts of the request do not fit each other.
    """
    if isinstance(model, Profile) and devices in (None, len(model.stages)):
        devices = len(model.stages)
    else:
        model = _layers(model)
        second = None if second is None else (_layers(second[0]), second[1])
    if devices is None:
        raise InputError("layers do not say on how many devices they go", hint="--devices")
    parts = model.stages if isinstance(model, Profile) else model.layers
    if placements is None:
        weighed = any(part.static_memory for part in parts)
        placements = ("linear", "loop", "v", "bidirectional") if weighed else ("linear", "loop", "v")
    if recompute is None:
        weighed = model.memory_unit in UNITS and all(part.output_bytes for part in parts[:-1])
        recompute = ("none", "all") if weighed else ("none",)
    for what, given in {"micro-batch counts": microbatches, "placements": placements, "caps": caps}.items():
        if not given:
            raise InputError(f"there are no {what} to choose from")
    cap = tuple(memory_cap) if isinstance(memory_cap, Sequence) else memory_cap
    first = linear(devices)
    plain = Problem(_cut(model, model, first), first, microbatches[0], cap, objective)
    yardstick = simulate(plain, named_schedule("1f1b", plain))
    peak, static = max(zip(yardstick.peak_memory, plain.static_memory, strict=True))
    limits = {limit for limit in plain.caps if not math.isinf(limit)}
    levels = {min(level, max(plain.caps)) for level in limits | {static + times * (peak - static) for times in caps}}
    found = []
    for where in _placements(devices, placements, chunks):
        for count in dict.fromkeys(microbatches):
            other = None if second is None else (_cut(second[0], model, where), second[1])
            costs = _resized(_cut(model, model, where), microbatches[0], count, other)
            for again in dict.fromkeys(recompute):
                for level in sorted(levels):
                    own = tuple(min(level, limit) for limit in plain.caps)
                    problem = Problem(costs, where, count, own, objective, backward, again)
                    found.append(Candidate(problem, level))
    notes = model.notes if isinstance(model, Layers) else ()
    return Space(tuple(found), yardstick, bool(limits), notes)


def _layers(model: Model) -> Layers:
    return Layers.of(model) if isinstance(model, Profile) else model


def _placements(devices: int, names: Sequence[str], chunks: Sequence[int]) -> Iterator[Placement]:
    """Every placement with every number of chunks that it can have."""
    for name in dict.fromkeys(names):
        for v in dict.fromkeys(chunks) if name in ("loop", "v") else (None,):
            yield place(placement=name, devices=devices, chunks=v)


def _cut(model: Model, leader: Model, where: Placement) -> Profile:
    """The profile of a model on a placement, its layers in the stages that suit those of the `leader`."""
    if isinstance(model, Layers) and isinstance(leader, Layers):
        if len(model.layers) != len(leader.layers):
            raise InputError("two tables of one model must have as many layers", code="two-profiles")
        return model.profile(split(leader, where))
    if isinstance(model, Profile) and isinstance(leader, Profile):
        if len(model.stages) != len(leader.stages):
            raise InputError(
                f"the second profile has {len(model.stages)} stages, the first {len(leader.stages)}", code="stage-count"
            )
        return model if where.kind == "linear" else divide(model, linear(where.devices), where)
    raise InputError("the second profile must be of layers where the first is, and not where it is not")


def _resized(profile: Profile, count: int, new: int, second: tuple[Profile, int] | None) -> Profile:
    """The profile for a global batch that is cut into `new` micro-batches instead of `count`."""
    check_count("micro-batches", new)
    if new == count:
        return profile
    if profile.microbatches is not None:
        raise InputError("a profile with a factor for each micro-batch is for one number of them", code="bad-key")
    if second is None:
        return scaled(profile, count / new)
    other, its = second
    if its == count or its < 1:
        raise InputError(f"the second profile is for {its} micro-batches; it must be another number than {count}")
    return between(profile, other, (1 / new - 1 / count) / (1 / its - 1 / count))
