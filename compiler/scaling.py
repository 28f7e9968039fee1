"""Scaling: the profile of micro-batches of another size."""

from __future__ import annotations

from msgspec.structs import replace

from .errors import InputError
from .profile import Link, Memory, Profile, Stage


def scaled(profile: Profile, factor: float) -> Profile:
    """Micro-batches `factor` times as large: all costs in proportion, but for static memory and a link's latency."""
    nothing = Stage(forward=0.0, backward_input=0.0, backward_weight=0.0, memory=Memory(0.0, 0.0, 0.0))
    empty = [replace(nothing, static_memory=stage.static_memory) for stage in profile.stages]
    comm = profile.comm
    if isinstance(comm, tuple):
        comm = tuple((0.0,) * len(row) for row in comm)
    elif not isinstance(comm, Link):
        comm = 0.0
    return between(replace(profile, stages=tuple(empty), comm=comm), profile, factor)


def between(first: Profile, second: Profile, share: float) -> Profile:
    """The profile on the line through two of the same model: the first at a `share` of 0, the second at 1.

    Measured at two sizes of a micro-batch, they give every size, with what a kernel costs however small its input.
    Raises InputError when they are not of the same model and units, or when the line gives a negative cost.
    """
    for what in ("time_unit", "memory_unit", "overlapped_pair", "microbatches"):
        if getattr(first, what) != getattr(second, what):
            raise InputError(f"two profiles of one model must have the same {what}", code="two-profiles")
    counts = f"{len(first.stages)} and {len(second.stages)}"
    if len(first.stages) != len(second.stages):
        raise InputError(f"two profiles of one model must have as many stages, not {counts}", code="two-profiles")

    def line(a: float, b: float) -> float:
        return a + share * (b - a)

    stages = []
    for a, b in zip(first.stages, second.stages, strict=True):
        changes = [line(getattr(a.memory, name), getattr(b.memory, name)) for name in Memory.__struct_fields__]
        names = ("forward", "backward_input", "backward_weight", "static_memory", "output_bytes")
        numbers = {name: line(getattr(a, name), getattr(b, name)) for name in names}
        fused = None if a.backward is b.backward is None else line(a.fused, b.fused)
        stages.append(replace(a, **numbers, backward=fused, memory=Memory(*changes)))
    try:
        return replace(first, stages=tuple(stages), comm=_comm(first.comm, second.comm, share))
    except InputError as error:
        raise InputError(f"the line through the two profiles leaves what can be: {error.message}") from None


_Comm = float | Link | tuple[tuple[float, ...], ...]


def _comm(a: _Comm, b: _Comm, share: float) -> _Comm:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a + share * (b - a)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(
            tuple(x + share * (y - x) for x, y in zip(row, other, strict=True)) for row, other in zip(a, b, strict=True)
        )
    if a != b:
        raise InputError("two profiles of one model must have the same comm, or numbers that change with the size")
    return a
