"""Problems under memory caps that test files of the search share."""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import strategies as st
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile


def linear(devices: int, microbatches: int, cap: float, objective: str = "makespan") -> Problem:
    """Costs 10/11/8, transfers 1, memory 2, -1, -1: the published toy of the zero-bubble search."""
    profile = Profile.uniform(
        stages=devices, forward=10, backward_input=11, backward_weight=8, comm=1, memory=(2, -1, -1)
    )
    return Problem(profile, placement.linear(devices), microbatches, cap, objective)


@st.composite
def capped(draw: st.DrawFn) -> Problem:
    """Problems of every kind, overlapped pairs and unequal micro-batches included, under caps from the least on."""
    backward = draw(st.sampled_from(["any", "split", "fused"]))
    problem = draw(problems(most_devices=4, most_microbatches=6, backward=backward))
    factor, ratio = st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.5, 0.8, 1.1])
    profile = msgspec.structs.replace(
        problem.profile,
        overlapped_pair=draw(st.none() | ratio | st.tuples(*[ratio] * problem.stages)),
        microbatches=draw(st.none() | st.tuples(*[factor] * problem.microbatches)),
    )
    problem = dataclasses.replace(problem, profile=profile)
    slack = draw(st.sampled_from([1.0, 1.3, 2.0]))
    return dataclasses.replace(problem, memory_cap=tuple(cap * slack for cap in problem.least_caps))
