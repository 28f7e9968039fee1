"""Lifting: schedules that follow a kernel."""

from __future__ import annotations

import time

from capped import capped, linear
from hypothesis import given, settings

from debubble.compiler.problem import Problem
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import require_valid
from debubble.solver.backend import Cbc
from debubble.solver.lifting import lift


def lifted(problem: Problem, seed: int = 0) -> list[Schedule]:
    return list(lift(problem, backend=Cbc(), seed=seed, deadline=time.monotonic() + 60))


@settings(max_examples=6, derandomize=True, deadline=None)
@given(capped())
def test_every_lifted_schedule_is_valid(problem: Problem) -> None:
    """Whatever the placement, the costs and the caps."""
    for schedule in lift(problem, backend=Cbc(), seed=0, deadline=time.monotonic() + 1):
        require_valid(problem, schedule)


def test_each_is_better_than_the_one_before() -> None:
    """What does not improve is not given."""
    problem = linear(3, 8, 4)
    values = [simulate(problem, schedule).value for schedule in lifted(problem)]
    assert values
    assert values == sorted(set(values), reverse=True)


def test_a_seed_gives_the_same_schedules_again() -> None:
    """With time to spare nothing depends on the clock."""
    problem = linear(2, 8, 3)
    assert lifted(problem, seed=3) == lifted(problem, seed=3)
