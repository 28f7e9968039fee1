"""Problems: parts that fit, costs, and the least cap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.errors import InfeasibleError, InputError
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation, Pair
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Link, Memory, Profile, Stage
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify

UNIT = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)


@pytest.mark.parametrize("backward", ["split", "fused"])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=problems())
def test_least_caps_are_what_the_naive_schedule_needs(backward: str, data: Problem) -> None:
    """At the least caps the naive schedule fits, and a little below there is nothing."""
    free = Problem(data.profile, data.placement, data.microbatches, backward=backward)
    naive = named_schedule("naive", free)
    assert simulate(free, naive).peak_memory == pytest.approx(list(free.least_caps))
    capped = Problem(data.profile, data.placement, data.microbatches, free.least_caps, backward=backward)
    capped.check_feasible()
    assert verify(capped, naive).valid


def test_impossible_cap_names_the_least() -> None:
    """Below one activation the problem is infeasible, with the stage and the cap that would do."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1, memory=(2, -1, -1))
    problem = Problem(profile, placement.linear(4), 4, memory_cap=1)
    with pytest.raises(InfeasibleError, match="stage 0 on device 0 needs at least 2") as caught:
        problem.check_feasible()
    assert caught.value.least_cap == [2, 2, 2, 2]


def test_static_memory_counts_on_the_heavy_stages() -> None:
    """Static memory makes the first and last stage too large, and not the middle."""
    heavy, light = (Stage(forward=1, backward_input=1, backward_weight=1, static_memory=s) for s in (9.5, 6.0))
    problem = Problem(Profile(stages=(heavy, light, heavy)), placement.linear(3), 4, memory_cap=10)
    assert [problem.within_cap(d, least) for d, least in enumerate(problem.least_caps)] == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"microbatches": 0}, "at least 1"),
        ({"microbatches": "8"}, "whole number"),
        ({"microbatches": 2.5}, "whole number"),
        ({"memory_cap": "much"}, "memory cap"),
        ({"microbatches": 10**9}, "operations"),
        ({"placement": placement.linear(3)}, "has 4 stages"),
        ({"memory_cap": (1.0, 2.0)}, "2 caps for 4 devices"),
        ({"memory_cap": math.nan}, "memory cap"),
        ({"memory_cap": -1}, "memory cap"),
        ({"objective": "speed"}, "unknown objective"),
        ({"backward": "half"}, "unknown backward"),
    ],
)
def test_parts_that_do_not_fit_are_named(arguments: dict, part: str) -> None:
    """Each mismatch is an InputError in words."""
    given = {"profile": UNIT, "placement": placement.linear(4), "microbatches": 8, **arguments}
    with pytest.raises(InputError, match=part):
        Problem(**given)


def test_microbatch_factors_scale_costs_and_bytes() -> None:
    """A factor of 2 doubles durations, memory and what crosses the link."""
    stage = Stage(forward=3, backward_input=4, backward_weight=5, memory=Memory(2, -1, -1), output_bytes=10)
    profile = Profile(stages=(stage, stage), comm=Link(1.0, 5.0), microbatches=(1.0, 2.0))
    problem = Problem(profile, placement.linear(2), 2)
    assert problem.duration(Operation("F", 0, 1)) == 6
    assert problem.memory(Operation("F", 0, 1)) == (4, 4)
    assert problem.transfer(0, 1, 0, 0) == 3
    assert problem.transfer(0, 1, 0, 1) == 5
    assert not problem.identical_microbatches


def test_pair_takes_the_sum_unless_given() -> None:
    """An overlapped pair takes F + BW by default, and the profile's ratio of it where given."""
    pair = Pair(Operation("F", 0, 1), Operation("BW", 0, 0))
    for ratio, duration in ((None, 3.0), (0.8, 2.4)):
        profile = Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1, overlapped_pair=ratio)
        assert Problem(profile, placement.linear(1), 2).duration(pair) == pytest.approx(duration)
