"""Bounds by formula: none is above the value of a schedule that exists."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from capped import capped
from hypothesis import given, settings

from debubble.compiler import placement
from debubble.compiler.bound import OF_A_DEVICE, critical_path
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.simulation import simulate
from debubble.solver.constructions import construct
from debubble.solver.improvement import improve


@settings(max_examples=60, derandomize=True, deadline=None)
@given(capped())
def test_no_formula_exceeds_what_local_search_finds(problem: Problem) -> None:
    """Whatever the costs, caps, pairs and forms of backwards, on problems larger than the oracle can solve."""
    schedule = next(construct(problem, deadline=0.0))
    schedule = improve(problem, schedule, seed=0, deadline=time.monotonic() + 0.05, target=0.0)
    bounds = [formula(problem, d) for formula in OF_A_DEVICE.values() for d in range(problem.devices)]
    assert max(critical_path(problem), *bounds) <= simulate(problem, schedule).value * (1 + 1e-9)


@pytest.mark.parametrize("formula", OF_A_DEVICE.values())
def test_backwards_count_by_their_quicker_form(formula: Callable[[Problem, int], float]) -> None:
    """One device with room for one activation takes F + BW for each micro-batch, though B alone is quicker."""
    stage = Stage(forward=4, backward_input=7, backward_weight=6, backward=9, memory=Memory(2, -1, -1))
    assert formula(Problem(Profile(stages=(stage,)), placement.linear(1), 4, 2.0), 0) <= 4 * 13
