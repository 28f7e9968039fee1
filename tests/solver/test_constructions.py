"""Constructions: always a schedule that fits, near the optimum before any improvement."""

from __future__ import annotations

import math

import pytest
from capped import capped, linear
from hypothesis import given, settings
from msgspec.structs import replace

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import require_valid
from debubble.solver.constructions import construct
from debubble.solver.dispatch import Rule, dispatch
from debubble.solver.evaluation import Model

FEW = settings(max_examples=60, derandomize=True, deadline=None)


@FEW
@given(capped())
def test_every_construction_is_valid(problem: Problem) -> None:
    """Whatever the placement, the costs and the caps, every schedule verifies, and there is at least one."""
    schedules = list(construct(problem, seed=0, deadline=0.0))
    assert schedules
    for schedule in schedules:
        require_valid(problem, schedule)


@FEW
@given(capped())
def test_list_scheduling_never_gets_stuck(problem: Problem) -> None:
    """Under the problem's own caps, room is kept so that every micro-batch that enters can leave."""
    model = Model(problem)
    assert dispatch(model, Rule([0.0] * model.pairs)) is not None


@FEW
@given(capped())
def test_evaluation_agrees_with_the_simulation(problem: Problem) -> None:
    """Value and peak memory of the flat orders are those of the judge."""
    schedule = next(construct(problem, seed=0, deadline=0.0))
    model = Model(problem)
    orders = model.orders(schedule)
    timeline = simulate(problem, schedule)
    assert model.evaluate(orders) == pytest.approx(timeline.value)
    assert [model.peak(d, order) for d, order in enumerate(orders)] == pytest.approx(timeline.peak_memory)


def test_each_construction_is_better_than_the_one_before() -> None:
    """What does not improve is not worth a look."""
    problem = linear(4, 8, 8)
    values = [simulate(problem, schedule).value for schedule in construct(problem, seed=1)]
    assert values == sorted(set(values), reverse=True)


def test_a_seed_gives_the_same_schedules_again() -> None:
    """Without a deadline nothing depends on the clock."""
    problem = linear(4, 6, 6)
    assert list(construct(problem, seed=3)) == list(construct(problem, seed=3))


@pytest.mark.parametrize(
    ("devices", "microbatches", "optimum"), [(4, 8, 283), (4, 12, 399), (8, 16, 583), (8, 24, 815), (16, 48, 1647)]
)
def test_the_memory_of_1f1b_suffices_for_the_optimum(devices: int, microbatches: int, optimum: float) -> None:
    """At 1x memory the likely plans alone reach the proven optimum (values from an independent exact solver)."""
    problem = linear(devices, microbatches, 2 * devices)
    for schedule in construct(problem, seed=0):
        if simulate(problem, schedule).value <= optimum:
            break
    assert simulate(problem, schedule).value == optimum


@pytest.mark.parametrize(
    ("costs", "devices", "microbatches", "rate"),
    [
        ((29718, 29444, 19927, 527), 8, 24, 0.0029),
        ((18546, 18097, 9321, 762), 8, 64, 0.0026),
        ((11347, 11248, 8132, 377), 16, 48, 0.0066),
    ],
)
def test_the_published_zero_bubble_rates_are_reached(
    costs: tuple[float, float, float, float], devices: int, microbatches: int, rate: float
) -> None:
    """At 2x memory by span: ZB-2p of Qi et al. 2023 (arXiv 2401.10241, table 5), or below."""
    forward, backward_input, backward_weight, comm = costs
    profile = Profile.uniform(
        stages=devices,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        comm=comm,
        memory=(2, -1, -1),
    )
    problem = Problem(profile, placement.linear(devices), microbatches, 4 * devices, "span")
    work = microbatches * (forward + backward_input + backward_weight)
    found = math.inf
    for schedule in construct(problem, seed=0):
        found = simulate(problem, schedule).value
        if round((found - work) / found, 4) <= rate:
            break
    assert round((found - work) / found, 4) <= rate


def test_bursts_make_good_use_of_tight_caps() -> None:
    """At half of 1F1B's memory, micro-batches at even distance stay at 1299 in as many trials."""
    problem = linear(8, 24, 8)
    for schedule in construct(problem, seed=0):
        if simulate(problem, schedule).value <= 1288:
            break
    assert simulate(problem, schedule).value <= 1288


def test_memory_that_rises_at_b_does_not_block_the_forwards() -> None:
    """Room is kept for the rise (optimum 277 from an independent exact solver)."""
    profile = Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1, memory=(2, 1, -3))
    problem = Problem(profile, placement.linear(4), 8, 12, backward="split")
    assert min(simulate(problem, schedule).value for schedule in construct(problem, seed=0)) == 277


def test_a_cheaper_fused_backward_is_used() -> None:
    """Where splitting costs time and there is nothing to fill, BW is the better choice."""
    stage = Stage(forward=1, backward_input=2, backward_weight=2, backward=3)
    problem = Problem(Profile(stages=(stage,)), placement.linear(1), 3)
    schedule = list(construct(problem, seed=0))[-1]
    assert simulate(problem, schedule).value == 12


def test_cheap_overlapped_pairs_are_used() -> None:
    """On one device, every pair at half its time shortens the schedule."""
    profile = Profile.uniform(stages=1, forward=2, backward_input=2, backward_weight=2, overlapped_pair=0.5)
    problem = Problem(profile, placement.linear(1), 4, 2)
    schedule = list(construct(problem, seed=0))[-1]
    assert simulate(problem, schedule).value < 24


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0, 4.0), (1.0, 4.0, 1.0, 1.0), (4.0, 1.0, 1.0, 1.0)])
def test_micro_batches_enter_in_the_best_order(factors: tuple[float, ...]) -> None:
    """However they are numbered, the optimum of the best order is found: here the longest comes last (exact search)."""
    profile = Profile.uniform(stages=3, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(replace(profile, microbatches=factors), placement.linear(3), 4, backward="split")
    schedule = list(construct(problem, seed=0))[-1]
    assert simulate(problem, schedule).value == 31
    assert next(iter(schedule.orders[0])).microbatch != factors.index(4.0)
