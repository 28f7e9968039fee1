"""Hypothesis strategies that test files share: random profiles, placements and problems."""

from __future__ import annotations

from hypothesis import strategies as st

from debubble.compiler import placement
from debubble.compiler.placement import Placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage

durations = st.integers(0, 20)


@st.composite
def placements(draw: st.DrawFn, most_devices: int = 5) -> Placement:
    """Any placement: linear, loop, v, bidirectional or a random list."""
    devices = draw(st.integers(1, most_devices))
    kind = draw(st.sampled_from([*placement.NAMES, "explicit"]))
    if kind == "linear":
        return placement.linear(devices)
    if kind == "bidirectional":
        return placement.bidirectional(devices)
    if kind == "explicit":
        owners = draw(st.permutations([*range(devices), *draw(st.lists(st.integers(0, devices - 1), max_size=3))]))
        return placement.explicit(tuple(owners))
    return (placement.loop if kind == "loop" else placement.v)(devices, draw(st.integers(1, 3)))


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    """Changes that sum to 0 and never leave less than nothing; B may rise."""
    forward = draw(st.integers(0, 6))
    after_backward = draw(st.integers(0, 2 * forward))
    return Memory(float(forward), float(after_backward - forward), float(-after_backward))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    forward, backward_input, backward_weight = draw(durations), draw(durations), draw(durations)
    fused = draw(st.none() | st.integers(0, backward_input + backward_weight))
    return Stage(
        forward=float(forward),
        backward_input=float(backward_input),
        backward_weight=float(backward_weight),
        backward=None if fused is None else float(fused),
        memory=draw(memories()),
        static_memory=float(draw(st.integers(0, 3))),
    )


@st.composite
def problems(draw: st.DrawFn, most_devices: int = 5, most_microbatches: int = 8, backward: str = "any") -> Problem:
    """Uneven stages on any placement, without a cap."""
    place = draw(placements(most_devices))
    profile = Profile(
        stages=tuple(draw(st.lists(stages(), min_size=place.stages, max_size=place.stages))),
        comm=float(draw(st.integers(0, 4))),
    )
    microbatches = draw(st.integers(1, most_microbatches))
    objective = draw(st.sampled_from(["makespan", "span"]))
    return Problem(profile, place, microbatches, objective=objective, backward=backward)
