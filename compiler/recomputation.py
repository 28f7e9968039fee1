"""Recomputation: the profile of a model that drops its activations and repeats each forward before its backward."""

from __future__ import annotations

from msgspec.structs import replace

from .errors import InputError
from .profile import Memory, Profile, Stage

UNITS = {
    **{"B": 1, "bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
"""Memory units in which the input that a recomputing stage keeps can be counted, in bytes."""


def recomputed(profile: Profile) -> Profile:
    """The same model with full activation recomputation on every stage (Chen et al. 2016).

    A backward takes a forward longer. Between F and B a stage holds its input alone (`output_bytes` of the stage before
    it, where the memory unit is one of bytes; else it counts as nothing). What one forward takes comes back while its
    backward runs; a device runs one at a time, so its static memory grows by the largest of these on its stage.
    The peak so counted is never below the true one. Raises InputError when the input of a stage takes more than its
    activations.
    """
    unit = UNITS.get(profile.memory_unit)
    kept = [0.0] + [0.0 if unit is None else stage.output_bytes / unit for stage in profile.stages[:-1]]
    return replace(
        profile,
        stages=tuple(
            _recomputed(index, stage, held)
            for index, (stage, held) in enumerate(zip(profile.stages, kept, strict=True))
        ),
    )


def _recomputed(index: int, stage: Stage, kept: float) -> Stage:
    memory = stage.memory
    if kept > memory.forward:
        raise InputError(
            f"stages[{index}]: its input takes {kept:g}, more than the {memory.forward:g} its forward holds: there is "
            "nothing to recompute",
            code="bad-memory",
        )
    rest = memory.forward + memory.backward_input  # what is held from B to W stays what it was
    return replace(
        stage,
        backward_input=stage.backward_input + stage.forward,
        backward=None if stage.backward is None else stage.backward + stage.forward,
        memory=Memory(kept, rest - kept, -rest),
        static_memory=stage.static_memory + memory.forward - kept,
    )
