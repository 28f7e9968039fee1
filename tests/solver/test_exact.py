"""Exact search: from an incumbent to a proof."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from instances import INSTANCES
from oracle import optimum
from strategies import tiny_problems

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify
from debubble.solver.exact import ExactResult, solve_exact


def instance(name: str) -> tuple[Problem, float]:
    found = next(i for i in INSTANCES if i.name == name)
    return found.problem(), found.optimum


def search(problem: Problem, start: str = "naive", lower_bound: float = 0, seconds: float = 60) -> ExactResult:
    incumbent = named_schedule(start, problem)
    return solve_exact(problem, incumbent, lower_bound, deadline=time.monotonic() + seconds)


@pytest.mark.parametrize(
    "name", ["two-devices", "fewer-microbatches-than-devices", "linear-4x8-cap4-span", "unit-held-to-W-cap2"]
)
def test_the_optimum_is_found_and_proved_from_a_poor_start(name: str) -> None:
    """The naive schedule is improved to the optimal value, with a bound that meets it."""
    problem, best = instance(name)
    result = search(problem)
    assert verify(problem, result.schedule).valid
    assert simulate(problem, result.schedule).value == best
    assert (result.lower_bound, result.complete) == (best, True)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(tiny_problems())
def test_the_optimum_is_that_of_every_order(problem: Problem) -> None:
    """Whatever differs by stage and micro-batch, the search finds the least value that trying every order finds.

    Without pairs, which the model lacks, and spans of two directions, which only devices that wait at first can have.
    """
    assume(not problem.pairs_pay)
    assume(problem.objective == "makespan" or not problem.placement.bidirectional)
    best = optimum(problem, 3000)
    assume(best is not None)
    result = search(problem)
    assert simulate(problem, result.schedule).value == pytest.approx(best)
    assert result.lower_bound == pytest.approx(best)


def test_an_optimal_start_is_proved_and_kept() -> None:
    """ZB-H1 is optimal at the memory of 1F1B; the search returns it with the proof."""
    problem, best = instance("linear-4x8-cap8-makespan")
    result = search(problem, "zb-h1")
    assert result.schedule == named_schedule("zb-h1", problem)
    assert (result.lower_bound, result.complete) == (best, True)


def test_a_bound_that_meets_the_start_ends_the_search() -> None:
    """With nothing left to prove, the start comes back with the bound given."""
    problem, best = instance("linear-4x8-cap8-makespan")
    result = search(problem, "zb-h1", best)
    assert (result.lower_bound, result.complete) == (best, True)


def test_without_time_the_start_and_the_bound_come_back() -> None:
    """A deadline that has passed costs nothing but the improvement."""
    problem, _ = instance("linear-4x8-cap4-span")
    result = search(problem, seconds=-1, lower_bound=400)
    assert result.schedule == named_schedule("naive", problem)
    assert (result.lower_bound, result.complete) == (400, False)


def test_overlapped_pairs_leave_the_bound_alone() -> None:
    """The model has no pairs, so it proves nothing where these save time."""
    profile = Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1, overlapped_pair=0.8)
    problem = Problem(profile, placement.linear(2), 3)
    result = search(problem)
    assert (result.lower_bound, result.complete) == (0, False)


def test_costs_without_a_tick_leave_a_bound_close_below_the_value() -> None:
    """Rounding costs down keeps the bound valid, and loses little."""
    profile = Profile.uniform(stages=2, forward=2**0.5, backward_input=3**0.5, backward_weight=1.1)
    problem = Problem(profile, placement.linear(2), 3, backward="split")
    result = search(problem)
    value = simulate(problem, result.schedule).value
    assert 0.9999 * value < result.lower_bound <= value


def test_progress_is_reported() -> None:
    """After every attempt, the best value and the bound."""
    problem, best = instance("two-devices")
    seen: list[tuple[float, float]] = []
    start = named_schedule("naive", problem)
    solve_exact(
        problem, start, 0, deadline=time.monotonic() + 60, report=lambda value, bound: seen.append((value, bound))
    )
    assert seen[-1] == (best, best)


def test_both_objectives_share_the_model() -> None:
    """At a generous cap the span is shorter than the makespan."""
    problem, best = instance("linear-4x8-cap16-span")
    assert search(problem, "zb-h2").lower_bound == best
    assert search(replace(problem, objective="makespan"), "zb-h2").lower_bound > best
