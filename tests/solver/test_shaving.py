"""Shaving: bounds by propagation, and the orders that prove them."""

from __future__ import annotations

import time

import pytest
from instances import INSTANCES

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.solver.shaving import shaved_bounds


def bounds(name: str, low: float = 0.0, seconds: float = 60.0) -> list[Certificate]:
    """The certificates below the optimal value of an instance."""
    found = next(i for i in INSTANCES if i.name == name)
    return list(shaved_bounds(found.problem(), low, found.optimum, time.monotonic() + seconds))


@pytest.mark.parametrize(("name", "optimum"), [("linear-4x8-cap6-span", 329), ("linear-8x16-cap12-makespan", 672)])
def test_the_last_bound_meets_the_optimum(name: str, optimum: float) -> None:
    """Tight caps on a line are proved to the end, from any bound on."""
    assert bounds(name, 0.8 * optimum)[-1].lower_bound == optimum


def test_bounds_ascend() -> None:
    """First what windows alone refute, then what takes orders."""
    found = bounds("unit-held-to-W-cap2")
    assert [(c.lower_bound, bool(c.witness["orders"])) for c in found] == [(40, False), (41, True)]


def test_nothing_is_repeated_that_is_known() -> None:
    """A bound that is the optimum already is not proved again."""
    assert bounds("linear-4x8-cap6-span", 329) == []


def test_without_time_nothing_is_found() -> None:
    """A deadline that has passed ends the search at once."""
    assert bounds("linear-4x8-cap6-span", seconds=-1) == []


def test_a_choice_of_backwards_is_left_alone() -> None:
    """Where fusing saves time propagation does not know all schedules."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, backward=1.5)
    problem = Problem(Profile(stages=(stage, stage)), placement.linear(2), 2)
    assert list(shaved_bounds(problem, 0, 20, time.monotonic() + 60)) == []
