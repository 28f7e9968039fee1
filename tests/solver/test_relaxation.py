"""The few-device relaxation: what one, two and three devices alone prove, and that finder and checker agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instances import INSTANCES
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.refutation import refuted
from debubble.compiler.relaxation import mirror, relax
from debubble.solver.relaxation import Budget, OutOfBudgetError, Walk, futures

PROBLEMS = {instance.name: instance.problem() for instance in INSTANCES}
FAR = 10**9


def value(problem: Problem, *whole: int, passing: tuple[int, ...] = ()) -> int | None:
    """The optimum of the relaxation that keeps these devices."""
    return Walk(relax(problem, (whole, passing)), FAR).optimum(Budget(FAR))


@pytest.mark.parametrize(("cap", "least"), [(4, 59), (5, 56), (6, 53), (7, 52), (8, 51)])
def test_last_device_alone_is_exact_on_v(cap: int, least: int) -> None:
    """On V the device where the flow turns gives the optimum at every cap (independent exact solver)."""
    assert value(PROBLEMS[f"v-unit-cap{cap}"], 3) == least


@pytest.mark.parametrize("device", [1, 2])
def test_middle_device_alone_is_exact_on_bidirectional(device: int) -> None:
    """Bidirectional, a middle device alone gives the optimum (independent exact solver)."""
    assert value(PROBLEMS["bidirectional-4x8"], device) == 242


def test_two_devices_prove_more_than_one() -> None:
    """Under a tight cap the second device closes the gap (independent exact solver)."""
    problem = PROBLEMS["linear-4x8-cap6-span"]
    assert (value(problem, 0), value(problem, 0, 2)) == (323, 329)


def test_passing_devices_prove_as_much_with_fewer_states() -> None:
    """Under a tight cap it is the other devices' forwards and backwards that cost time (independent exact solver)."""
    problem = PROBLEMS["linear-4x8-cap6-span"]
    assert value(problem, 0, passing=(1, 2, 3)) == 329


def test_span_is_not_measured_from_another_devices_start() -> None:
    """For span, a device that starts later is no reason for a larger bound."""
    problem = PROBLEMS["linear-4x8-cap16-span"]
    assert value(problem, 0, 3) == 245


def test_fused_backwards_are_used_where_they_are_cheaper() -> None:
    """A fused backward that saves time lowers the bound when it is allowed."""
    profile = Profile.uniform(stages=2, forward=2, backward_input=2, backward_weight=2)
    stages = tuple(type(stage)(forward=2, backward_input=2, backward_weight=2, backward=3) for stage in profile.stages)
    bounds = {
        mode: value(Problem(Profile(stages=stages), placement.linear(2), 4, None, "makespan", mode), 0)
        for mode in ("split", "fused", "any")
    }
    assert bounds["any"] <= min(bounds["split"], bounds["fused"])
    assert bounds["fused"] < bounds["split"]


def test_overlapped_pairs_are_used_where_they_are_cheaper() -> None:
    """A pair with a ratio below 1 lowers the bound; one above 1 changes nothing."""
    bounds = [
        value(
            Problem(
                Profile.uniform(stages=2, forward=2, backward_input=2, backward_weight=2, overlapped_pair=ratio),
                placement.linear(2),
                4,
            ),
            0,
        )
        for ratio in (None, 0.5, 1.5)
    ]
    assert bounds[1] < bounds[0] == bounds[2]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    problems(most_devices=3, most_microbatches=3),
    st.permutations(range(3)),
    st.integers(1, 3),
    st.integers(1, 3),
    st.floats(1, 2),
)
def test_checker_confirms_the_optimum_and_nothing_above(
    problem: Problem, order: list[int], whole: int, count: int, slack: float
) -> None:
    """Finder and checker, which share no search, agree to the tick on the optimum of any relaxation."""
    assume(whole <= count <= problem.devices and (count == 1 or not problem.placement.bidirectional))
    caps = tuple(slack * least for least in problem.least_caps)
    problem = replace(problem, memory_cap=caps, backward="any")
    devices = [device for device in order if device < problem.devices]
    kept = tuple(devices[:whole]), tuple(devices[whole:count])
    try:
        optimum = Walk(relax(problem, kept), FAR).optimum(Budget(4000))
    except OutOfBudgetError:
        return
    assert optimum is not None
    assert refuted(problem, kept, optimum, FAR)
    assert not refuted(problem, kept, optimum + 1, FAR)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(problems(most_devices=3, most_microbatches=3))
def test_reversed_time_gives_the_same_optimum(problem: Problem) -> None:
    """A relaxation and its mirror have the same orders, and so the same optimum."""
    relaxation = relax(problem, ((0,), ()))
    budgets = [Budget(10_000), Budget(10_000)]
    try:
        forwards = Walk(relaxation, FAR).optimum(budgets[0])
        backwards = Walk(mirror(relaxation), FAR).optimum(budgets[1])
    except OutOfBudgetError:
        return
    assert forwards == backwards


def test_futures_keep_every_order_within_the_limit() -> None:
    """Bounding each device alone prunes, but does not change the optimum of two."""
    problem = PROBLEMS["linear-4x8-cap6-span"]
    left = {(0,): futures(relax(problem, ((0,), ())), 329, Budget(FAR))}
    assert Walk(relax(problem, ((0, 2), ())), 329, left).optimum(Budget(FAR)) == 329


def test_futures_of_pairs_keep_every_order_within_the_limit() -> None:
    """Bounding the first device with each other one prunes, but does not change the optimum of all."""
    problem, limit = PROBLEMS["linear-4x8-cap6-span"], 335
    left = {(0, other): futures(relax(problem, ((0,), (other,))), limit, Budget(FAR)) for other in (1, 2, 3)}
    assert Walk(relax(problem, ((0,), (1, 2, 3))), limit, left).optimum(Budget(FAR)) == 329


def test_budget_ends_a_walk() -> None:
    """A walk that needs more labels than it may make is given up."""
    with pytest.raises(OutOfBudgetError):
        Walk(relax(PROBLEMS["v-unit-cap8"], ((3,), ())), FAR).optimum(Budget(100))
