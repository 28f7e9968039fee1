"""Stretching: what repeats in a schedule, repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from capped import linear

from debubble.compiler.profile import Profile
from debubble.compiler.verification import require_valid
from debubble.solver.constructions import construct
from debubble.solver.evaluation import Model
from debubble.solver.stretching import shortened, stretch


def test_few_micro_batches_are_not_shortened() -> None:
    """A small problem is scheduled as it is."""
    problem = linear(4, 12, 6)
    assert shortened(problem) is problem


def test_micro_batches_that_differ_are_not_left_out() -> None:
    """Only identical ones stand for each other."""
    problem = linear(2, 2000, 4)
    profile = Profile(stages=problem.profile.stages, microbatches=(1.0, 2.0) * 1000)
    other = replace(problem, profile=profile, memory_cap=None)
    assert shortened(problem).microbatches < 2000
    assert shortened(other) is other


@pytest.mark.parametrize("cap", [4, 6, 8])
def test_a_stretched_schedule_is_valid_and_as_fast_in_its_middle(cap: int) -> None:
    """Repeating a part costs its time once more for each repetition, and keeps caps and dependencies."""
    few, many = linear(4, 36, cap), linear(4, 132, cap)
    short, model = Model(few), Model(many)
    schedule = next(construct(few, seed=0, deadline=0.0))
    orders = short.orders(schedule)
    whole = stretch(short, orders, model)
    assert whole is not None
    require_valid(many, model.schedule(whole, "stretched"))
    assert model.evaluate(whole) / 132 <= short.evaluate(orders) / 36


def test_nothing_is_stretched_that_does_not_repeat() -> None:
    """With one micro-batch there is no other moment at which the state is the same."""
    short, model = Model(linear(2, 1, 4)), Model(linear(2, 13, 4))
    assert stretch(short, short.orders(next(construct(short.problem))), model) is None
