"""Propagation as a proof: what it confirms is true, and a damaged witness is refused."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import INSTANCES, Instance
from oracle import optimum
from strategies import tiny_problems

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate, check
from debubble.compiler.errors import CertificateError
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.solver.shaving import shaved_bounds

ALONE = [
    "linear-4x8-cap4-span",
    "linear-4x8-cap6-span",
    "linear-8x16-cap16-makespan",
    "memory-rises-at-B",
    "uneven-stages-and-caps",
    "bidirectional-4x8",
    "v-unit-cap8",
]
SHAVED = ["unit-held-to-W-cap2", "v-3x4", "loop-3x4", "bidirectional-unit-held-to-B-cap3"]


def instance(name: str) -> Instance:
    return next(i for i in INSTANCES if i.name == name)


def claim(bound: float, orders: object) -> Certificate:
    return Certificate(lower_bound=bound, name="propagation", proof="checked", witness={"orders": orders})


def shaved(problem: Problem, best: float) -> Certificate:
    """The last certificate that shaving finds below a known value."""
    return list(shaved_bounds(problem, 0, best, time.monotonic() + 60))[-1]


@pytest.mark.parametrize("name", ALONE)
def test_rules_alone_prove_an_optimum(name: str) -> None:
    """The optimal value is confirmed without any witness, and nothing above it."""
    found = instance(name)
    assert check(found.problem(), claim(found.optimum, [])) == found.optimum
    with pytest.raises(CertificateError, match="leaves a value"):
        check(found.problem(), claim(found.optimum + 1, []))


@pytest.mark.parametrize("name", SHAVED)
def test_orders_prove_an_optimum(name: str) -> None:
    """Orders whose opposites are refuted prove what the rules alone leave open."""
    found = instance(name)
    certificate = shaved(found.problem(), found.optimum)
    assert check(found.problem(), certificate) == found.optimum
    with pytest.raises(CertificateError):
        check(found.problem(), claim(found.optimum, []))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(tiny_problems())
def test_bounds_never_exceed_the_optimum(problem: Problem) -> None:
    """No certificate is above what the oracle finds by trying every order, and the checker confirms each."""
    best = optimum(problem, 3000)
    if best is None:
        return
    for certificate in shaved_bounds(problem, 0, 1.1 * best + 1, time.monotonic() + 60):
        assert certificate.lower_bound <= best * (1 + 1e-9)
        assert check(problem, certificate) == certificate.lower_bound


@settings(derandomize=True, deadline=None, max_examples=10)
@given(tiny_problems(), st.randoms(use_true_random=False))
def test_no_orders_prove_more_than_the_optimum(problem: Problem, rng: random.Random) -> None:
    """Whatever orders a stranger writes down, a value above the optimum is not confirmed."""
    best = optimum(problem, 3000)
    if best is None:
        return
    names = [f"{s}{kind}{j}" for s in range(problem.stages) for kind in "FBW" for j in range(problem.microbatches)]
    orders = [rng.sample(names, 2) for _ in range(4)]
    for number in range(len(orders)):
        with pytest.raises(CertificateError):
            check(problem, claim(best * 1.001 + 0.001, orders[:number]))


def test_an_order_that_does_not_follow_is_refused() -> None:
    """With a generous limit either order of two operations is possible, and neither is taken on trust."""
    for order in (["0F1", "0B0"], ["0B0", "0F1"]):
        with pytest.raises(CertificateError, match="nothing says"):
            check(instance("v-3x4").problem(), claim(1000, [order]))


@pytest.mark.parametrize(
    "orders",
    [
        *(0, {}, [0], ["0F1"], [["0F1"]], [["0F1", "0B0", "0W0"]], [["0F1", 3]], [["0F1", "0X0"]]),
        *([["0F1", "1B0"]], [["0F1", "0F1"]], [["9F0", "0F0"]], [["0F1", "0BW0"]]),
    ],
)
def test_malformed_orders_are_refused(orders: object) -> None:
    """What is no list of two operations of one device is refused in words."""
    found = instance("v-3x4")
    with pytest.raises(CertificateError):
        check(found.problem(), claim(found.optimum, orders))


def test_other_keys_are_refused() -> None:
    """A witness with more than its orders is not read."""
    problem = instance("two-devices").problem()
    with pytest.raises(CertificateError, match="keys"):
        check(problem, Certificate(lower_bound=1.0, name="propagation", proof="checked", witness={"device": 0}))


def test_work_of_checking_is_bounded() -> None:
    """A check that does not end by its deadline is refused, not waited for."""
    with pytest.raises(CertificateError, match="too long"):
        check(instance("v-3x4").problem(), claim(209, []), deadline=time.monotonic())


def test_a_choice_of_backwards_is_refused() -> None:
    """Where fusing saves time the rules do not know all schedules."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, backward=1.5)
    profile = Profile(stages=(stage, stage))
    with pytest.raises(CertificateError, match="split or fused"):
        check(Problem(profile, placement.linear(2), 2), claim(1, []))


def test_the_reason_names_what_binds() -> None:
    """The certificate says in words why nothing is below."""
    assert "its cap" in claim(1, []).reason
