"""Bounds: they hold for every schedule, and are as good as they are meant to be."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from instances import INSTANCES, Instance
from msgspec.structs import replace
from oracle import optimum
from strategies import tiny_problems

from debubble.compiler import placement
from debubble.compiler.bound import memory
from debubble.compiler.certificate import Certificate, check
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.solver.bounds import Finder, best_bound

NEED_MORE = {
    "v-unit-cap3": 80,
    "linear-8x16-cap8-makespan": 847,
    "linear-8x16-cap12-makespan": 657,
    "bidirectional-unit-held-to-W-cap2": 30,
    "bidirectional-unit-held-to-W-cap3": 26,
}
"""Instances that take more than a few seconds to prove, and what one device alone gives."""


def linear(p: int, m: int, costs: tuple[float, ...], comm: float, cap: float, objective: str = "makespan") -> Problem:
    """Equal stages on a line, with the zero-bubble paper's memory."""
    f, b, w = costs
    profile = Profile.uniform(
        stages=p, forward=f, backward_input=b, backward_weight=w, comm=comm, memory=(2.0, -1.0, -1.0)
    )
    return Problem(profile, placement.linear(p), m, cap, objective, "split")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(tiny_problems())
def test_bounds_never_exceed_the_optimum(problem: Problem) -> None:
    """No bound is above what the oracle finds by trying every order."""
    best = optimum(problem, 3000)
    if best is not None:
        assert best_bound(problem).lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name not in NEED_MORE], ids=str)
def test_bound_meets_the_proven_optimum(instance: Instance) -> None:
    """Given an optimal value, the bound reaches it and no more, with a checked proof."""
    certificate = best_bound(instance.problem(), incumbent=instance.optimum)
    assert (certificate.lower_bound, certificate.proof) == (instance.optimum, "checked")


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in NEED_MORE], ids=str)
def test_bound_of_hard_instances_is_between(instance: Instance) -> None:
    """Where a second gives no proof, the bound is at least that of one device and never above the optimum."""
    certificate = best_bound(instance.problem(), incumbent=instance.optimum, deadline=time.monotonic() + 1)
    assert NEED_MORE[instance.name] <= certificate.lower_bound <= instance.optimum


@pytest.mark.parametrize(
    ("p", "m", "costs", "comm", "cap", "value"),
    [
        (4, 12, (10, 11, 8), 1, 8, 399),
        (8, 24, (10, 11, 8), 1, 16, 815),
        (16, 48, (10, 11, 8), 1, 32, 1647),
        (32, 96, (10419, 10207, 7715), 408, 64, 3171569),
        (32, 256, (10402, 10248, 7698), 460, 64, 7715640),
        (64, 1024, (10, 11, 8), 1, 128, 30767),
    ],
)
def test_bound_of_large_linear_problems(
    p: int, m: int, costs: tuple[float, ...], comm: float, cap: float, value: float
) -> None:
    """With room for p micro-batches ZB-H1's makespan is proved optimal at any size (published values)."""
    assert best_bound(linear(p, m, costs, comm, cap), incumbent=value).lower_bound == value


def test_bound_with_measured_memory() -> None:
    """Memory changes of a real model, which have many distinct sums, cost no precision (published values)."""
    memory = (454656.0, -258048.0, -196608.0)
    profile = Profile.uniform(
        stages=32, forward=10419, backward_input=10207, backward_weight=7715, comm=408, memory=memory
    )
    problem = Problem(profile, placement.linear(32), 96, 32 * memory[0])
    assert best_bound(problem, incumbent=3171569).lower_bound == 3171569


def test_bound_without_incumbent_ends_by_itself() -> None:
    """Without an incumbent the search ends by itself, with the same bound."""
    instance = next(instance for instance in INSTANCES if instance.name == "two-devices")
    assert best_bound(instance.problem()).lower_bound == instance.optimum


def test_deadline_in_the_past_still_gives_a_bound() -> None:
    """Even without time there is a certificate that holds."""
    problem = linear(4, 8, (10, 11, 8), 1, 8)
    certificate = best_bound(problem, deadline=time.monotonic() - 1)
    assert 0 <= check(problem, certificate) <= 283


def test_finder_asked_again_goes_on() -> None:
    """What a deadline cut short is taken up again, up to the optimum (independent exact solver)."""
    finder = Finder(linear(4, 8, (10, 11, 8), 1, 6))
    first = finder.find(329, time.monotonic() - 1).lower_bound
    assert first < finder.find(329).lower_bound == 329


def test_reports_only_improvements() -> None:
    """Every reported certificate is better than the one before."""
    seen: list[Certificate] = []
    best_bound(linear(4, 8, (10, 11, 8), 1, 6), incumbent=329, report=seen.append)
    bounds = [certificate.lower_bound for certificate in seen]
    assert bounds == sorted(set(bounds))


def test_decimal_costs_are_exact() -> None:
    """Costs with few digits are whole ticks: no bound is lost to rounding."""
    bound = best_bound(linear(4, 8, (0.1, 0.11, 0.08), 0.01, 8), incumbent=2.83).lower_bound
    assert bound == pytest.approx(2.83, rel=1e-12)


def test_free_operations_have_a_bound_of_zero() -> None:
    """Where nothing takes time the bound is 0, and met."""
    certificate = best_bound(linear(2, 2, (0, 0, 0), 0, 8), incumbent=0.0)
    assert certificate.gap(0.0) == 0


def test_memory_counts_every_micro_batch_by_its_own_factor() -> None:
    """Factors of 1 and 3 hold 1 for 3 units of time, and 3 for 9; at a cap of 3 that takes 10."""
    profile = Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(replace(profile, microbatches=(1.0, 3.0)), placement.linear(1), 2, 3)
    assert memory(problem, 0) == pytest.approx(10)
