"""Requests: what a user says of a problem, made into one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from .compiler import placement as placements
from .compiler.division import divide
from .compiler.errors import InputError
from .compiler.named import PLACEMENTS
from .compiler.numbers import check_count
from .compiler.placement import Placement
from .compiler.problem import Problem
from .compiler.profile import MAX_STAGES, Profile
from .compiler.recomputation import Recompute
from .compiler.wording import counted

PlacementLike: TypeAlias = str | Sequence[int] | Placement
"""The name of a placement, a list such as "0,1,1,0" or (0, 1, 1, 0), or a `Placement`."""


def place(
    *,
    placement: PlacementLike | None,
    devices: int | None,
    chunks: int | None,
    schedule: str = "auto",
    stages: int | None = None,
) -> Placement:
    """The placement that a request means: by default the one its named schedule was drawn for, else linear.

    What is left out of `devices` and `chunks` follows from the placement's list or from the number of `stages`.
    Raises InputError when the numbers contradict each other.
    """
    if isinstance(placement, Placement):
        _check(placement, str(placement), devices=devices, chunks=chunks, stages=stages)
        return placement
    for what, number in (("devices", devices), ("chunks", chunks)):
        if number is not None:
            check_count(what, number, most=MAX_STAGES)
    if placement is not None and placements.is_list(placement):
        made = placements.explicit(placement)
    else:
        name = str(placement or PLACEMENTS.get(schedule, "linear"))
        if stages is not None and name in ("loop", "v"):
            if devices is None:
                devices = _divide(stages, chunks or 2, name, "chunks per device")
            chunks = chunks or _divide(stages, devices, name, "devices")
            if chunks == 1 and devices > 1:
                raise InputError(
                    f"{counted(stages, 'stage')} on {counted(devices, 'device')} are one chunk each, not a {name}",
                    code="stage-count",
                    hint="--chunks 2 cuts each stage of the profile in two",
                )
        devices = devices or stages
        if devices is None:
            raise InputError("the number of devices is missing", hint="give a profile, or --devices")
        made = placements.named(name, devices=devices, chunks=chunks)
    _check(made, str(placement or made), devices=devices, chunks=chunks, stages=stages)
    return made


def _divide(stages: int, parts: int, name: str, what: str) -> int:
    whole, rest = divmod(stages, parts)
    if rest or not whole:
        raise InputError(
            f"{counted(stages, 'stage')} cannot be placed as a {name} with {parts} {what}",
            code="stage-count",
            hint="stages = devices x chunks",
        )
    return whole


def _check(placement: Placement, name: str, *, devices: int | None, chunks: int | None, stages: int | None) -> None:
    """The placement, named as it was given, is what the other numbers say."""
    if devices is not None and placement.devices != devices:
        raise InputError(f"the placement {name} is for {counted(placement.devices, 'device')}, not {devices}")
    if chunks is not None and any(len(held) != chunks for held in placement.copies) and not placement.bidirectional:
        raise InputError(f"the placement {name} does not put {counted(chunks, 'chunk')} on every device")
    if stages is not None and placement.stages != stages:
        raise InputError(
            f"the profile has {counted(stages, 'stage')}, but a {placement.kind} placement on "
            f"{counted(placement.devices, 'device')} has {placement.stages}",
            code="stage-count",
            hint="stages = devices x chunks (bidirectional: stages = devices)",
        )


def make_problem(
    profile: Profile | str | os.PathLike[str],
    *,
    microbatches: int,
    placement: PlacementLike | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    memory_cap: float | Sequence[float] | None = None,
    objective: str = "makespan",
    backward: str = "any",
    schedule: str = "auto",
    recompute: Recompute = "none",
) -> Problem:
    """The problem that a request means. Raises InputError when its parts do not fit each other.

    A profile of one stage per device is cut into the `chunks` asked for, each an equal part of the device's stage.
    """
    costs = as_profile(profile)
    stages = len(costs.stages)
    if devices == stages and chunks is not None and chunks > 1 and isinstance(placement, str | None):
        where = place(placement=placement, devices=devices, chunks=chunks, schedule=schedule)
        costs = divide(costs, placements.linear(devices), where)
    else:
        where = place(placement=placement, devices=devices, chunks=chunks, schedule=schedule, stages=stages)
    cap = tuple(memory_cap) if isinstance(memory_cap, Sequence) else memory_cap
    return Problem(costs, where, microbatches, cap, objective, backward, recompute)


def as_profile(profile: Profile | str | os.PathLike[str]) -> Profile:
    """A profile, or the one in a file. Raises InputError when the file cannot be understood."""
    return profile if isinstance(profile, Profile) else Profile.load(profile)
