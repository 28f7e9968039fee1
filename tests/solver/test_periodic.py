"""The kernel ILP: the shortest period of a steady state under the caps."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from capped import linear

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.solver.backend import Cbc
from debubble.solver.evaluation import B, F, Model, W
from debubble.solver.periodic import Kernel, find_kernel


def kernel(problem: Problem, copies: int = 1, fused: frozenset[int] = frozenset()) -> Kernel | None:
    return find_kernel(Model(problem), copies, Cbc(), deadline=time.monotonic() + 60, fused=fused)


def period(problem: Problem, copies: int = 1, fused: frozenset[int] = frozenset()) -> float:
    found = kernel(problem, copies, fused)
    assert found is not None
    return found.period / copies


def test_enough_memory_leaves_no_idle_time() -> None:
    """At the memory of 1F1B the period is the work on one micro-batch."""
    assert period(linear(8, 4, 16)) == pytest.approx(29)


def test_one_micro_batch_in_flight_makes_the_period_its_way() -> None:
    """Under the least cap the next F waits for the W on the first device: 2 x (10 + 1) + 2 x (11 + 1) + 10 + 11 + 8."""
    assert period(linear(3, 4, 2)) == pytest.approx(2 * 11 + 2 * 12 + 29)


def test_the_period_does_not_depend_on_the_number_of_micro_batches() -> None:
    """The model is the same for few and many."""
    assert kernel(linear(4, 4, 4)) == kernel(linear(4, 400, 4))


def test_two_micro_batches_in_a_period_can_be_better_than_one() -> None:
    """At three quarters of the memory of 1F1B, eight devices take 44 for each micro-batch alone, 34 in pairs."""
    assert period(linear(8, 4, 12)) == pytest.approx(44)
    assert period(linear(8, 4, 12), copies=2) == pytest.approx(34)


def test_operations_of_a_device_never_overlap() -> None:
    """In any period, each starts after the end of the one before."""
    problem = linear(4, 4, 6)
    found = kernel(problem, copies=2)
    assert found is not None
    durations = {F: 10.0, B: 11.0, W: 8.0}
    for device in range(4):
        runs = sorted(
            (found.start(kind, device, number), durations[kind]) for kind in durations for number in range(2, 8)
        )
        for (start, duration), (following, _) in pairwise(runs):
            assert following >= start + duration - 1e-3


def test_fused_backwards_are_one_operation() -> None:
    """A stage with fused backwards takes F and BW, here in less time."""
    stage = Stage(forward=2, backward_input=2, backward_weight=2, backward=3)
    problem = Problem(Profile(stages=(stage, stage)), placement.linear(2), 4)
    assert period(problem, fused=frozenset({0, 1})) == pytest.approx(5)


def test_both_directions_have_their_turn() -> None:
    """In a bidirectional placement a period has one micro-batch of each direction."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    assert period(Problem(profile, placement.bidirectional(4), 8)) == pytest.approx(6)


def test_static_memory_takes_room() -> None:
    """What weights take is not there for activations: the period is that of the smaller cap."""
    memory = Memory(forward=2, backward_input=-1, backward_weight=-1)
    stage = Stage(forward=10, backward_input=11, backward_weight=8, memory=memory, static_memory=5)
    problem = Problem(Profile(stages=(stage,) * 3, comm=1), placement.linear(3), 4, 7)
    assert period(problem) == pytest.approx(period(linear(3, 4, 2)))


def test_no_time_finds_nothing() -> None:
    """A deadline that has passed gives no kernel."""
    assert find_kernel(Model(linear(3, 4, 2)), 1, Cbc(), deadline=time.monotonic() - 1) is None
