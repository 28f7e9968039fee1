"""Hypothesis strategies that test files share: random profiles, placements and problems."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from debubble.compiler import placement
from debubble.compiler.placement import Placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Link, Memory, Profile, Stage

durations = st.integers(0, 20)
recomputations = st.sampled_from(["none", "none", "all", 1, 2])


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
    """Uneven stages on any placement, without a cap, with and without recomputation."""
    place = draw(placements(most_devices))
    profile = Profile(
        stages=tuple(draw(st.lists(stages(), min_size=place.stages, max_size=place.stages))),
        comm=float(draw(st.integers(0, 4))),
    )
    microbatches = draw(st.integers(1, most_microbatches))
    objective = draw(st.sampled_from(["makespan", "span"]))
    recompute = draw(recomputations)
    return Problem(profile, place, microbatches, objective=objective, backward=backward, recompute=recompute)


@st.composite
def tiny_problems(draw: st.DrawFn) -> Problem:
    """Problems that the oracle can solve: every placement, mode and objective, uneven costs, links, factors, with and
    without recomputation."""
    place, m = draw(
        st.sampled_from(
            [
                (placement.linear(1), 3),
                (placement.linear(2), 2),
                (placement.linear(2), 3),
                (placement.linear(3), 2),
                (placement.v(2), 2),
                (placement.loop(2), 2),
                (placement.bidirectional(2), 2),
                (placement.bidirectional(2), 3),
                (placement.explicit((0, 1, 1)), 2),
                (placement.explicit((1, 0)), 2),
            ]
        )
    )
    times = st.sampled_from([0.0, 1.0, 2.0, 3.0, 2.5])
    ratios = st.sampled_from([0.3, 0.5, 0.9, 1.2])
    memories = st.sampled_from([(1, 0, -1), (2, -1, -1), (2, 1, -3), (1, -1, 0)])
    stages = tuple(
        Stage(
            forward=draw(times),
            backward_input=draw(times),
            backward_weight=draw(times),
            backward=draw(st.none() | times),
            memory=Memory(*map(float, draw(memories))),
            static_memory=draw(st.sampled_from([0.0, 1.0])),
            output_bytes=draw(st.sampled_from([0.0, 1.0])),
        )
        for _ in range(place.stages)
    )
    matrix = tuple(tuple(float(2 * a + b) for b in range(place.devices)) for a in range(place.devices))
    profile = Profile(
        stages=stages,
        comm=draw(st.sampled_from([0.0, 1.0, Link(0.5, 2.0), matrix])),
        memory_unit="B",
        overlapped_pair=draw(st.sampled_from([None, 0.7, 1.2]) | st.tuples(*[ratios] * place.stages)),
        microbatches=draw(st.none() | st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=m, max_size=m).map(tuple)),
    )
    free = Problem(
        profile,
        place,
        m,
        None,
        draw(st.sampled_from(["makespan", "span"])),
        draw(st.sampled_from(["split", "fused", "any"])),
        draw(recomputations),
    )
    room = draw(st.sampled_from([None, 0.0, 1.0, 2.0]))
    return free if room is None else replace(free, memory_cap=tuple(least + room for least in free.least_caps))
