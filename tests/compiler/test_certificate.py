"""Certificates: what is claimed is recomputed, and what does not hold is refused."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate, check
from debubble.compiler.errors import CertificateError
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.solver.bounds import best_bound

PROBLEM = Problem(
    Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1, memory=(2.0, -1.0, -1.0)),
    placement.linear(4),
    8,
    6.0,
    backward="split",
)


def certificate(bound: float, name: str, witness: dict[str, Any]) -> Certificate:
    return Certificate(lower_bound=bound, name=name, proof="checked", witness=witness)


@pytest.mark.parametrize(
    ("name", "witness", "value"),
    [
        ("critical path", {}, 98.0),
        ("load", {"device": 3}, 265.0),
        ("turnaround", {"device": 0}, 312.0),
        ("relaxation", {"devices": [0], "passing": []}, 323.0),
        ("relaxation", {"devices": [0, 2], "passing": []}, 329.0),
        ("relaxation", {"devices": [0], "passing": [1, 2, 3]}, 329.0),
    ],
)
def test_check_accepts_exactly_what_holds(name: str, witness: dict[str, Any], value: float) -> None:
    """The bound itself is confirmed; one tick more is refused."""
    assert check(PROBLEM, certificate(value, name, witness)) == value
    with pytest.raises(CertificateError):
        check(PROBLEM, certificate(value + 1, name, witness))


@settings(derandomize=True, deadline=None, max_examples=20)
@given(problems(most_devices=3, most_microbatches=3), st.sampled_from([1.01, 2.0, 1e9]))
def test_raised_bounds_are_refused(problem: Problem, factor: float) -> None:
    """A bound above the value of some schedule is never confirmed."""
    found = best_bound(problem, deadline=time.monotonic() + 1)
    work = sum(cost.duration for costs in problem.least.values() for cost in costs)
    serial = problem.microbatches * (work + 2 * 4 * problem.stages)
    claim = max(found.lower_bound, serial) * factor + 1
    with pytest.raises(CertificateError):
        check(problem, certificate(claim, found.name, found.witness))


@pytest.mark.parametrize(
    ("cap", "objective", "value"),
    [(32, "span", 519.5), (32, "makespan", 523.5), (20, "span", 606.5), (20, "makespan", 606.5)],
)
def test_turnaround_where_a_v_turns(cap: float, objective: str, value: float) -> None:
    """The formula knows a device with two stages, and what has to follow on others (values of an exact search)."""
    profile = Profile.uniform(
        stages=16, forward=5, backward_input=5.5, backward_weight=4, comm=1, memory=(2.0, -1.0, -1.0)
    )
    problem = Problem(profile, placement.v(8), 16, cap, objective, "split")
    assert check(problem, certificate(value, "turnaround", {"device": 7})) == value


@pytest.mark.parametrize(("p", "value"), [(4, 236), (8, 474), (16, 950)])
def test_crossing_of_two_directions(p: int, value: float) -> None:
    """Two devices in the middle cannot both have the direction first that suits them."""
    profile = Profile.uniform(
        stages=p, forward=10, backward_input=11, backward_weight=8, comm=1, memory=(2.0, -1.0, -1.0)
    )
    problem = Problem(profile, placement.bidirectional(p), 2 * p, 2.0 * p, "span", "split")
    middle = certificate(value, "crossing", {"device": p // 2 - 1})
    assert check(problem, middle) == value
    assert str(p // 2 - 1) in middle.reason


def test_another_device_does_not_prove_it() -> None:
    """A witness with the device changed proves less, and is refused."""
    with pytest.raises(CertificateError):
        check(PROBLEM, certificate(323.0, "relaxation", {"devices": [1], "passing": []}))


@pytest.mark.parametrize(
    ("name", "witness"),
    [
        ("none", {}),
        ("load", {}),
        ("load", {"device": "0"}),
        ("load", {"device": True}),
        ("load", {"device": 4}),
        ("load", {"device": -1}),
        ("load", {"device": 0, "more": 1}),
        ("relaxation", {"devices": [0]}),
        ("relaxation", {"devices": 0, "passing": []}),
        ("relaxation", {"devices": [], "passing": [0]}),
        ("relaxation", {"devices": [0, 0], "passing": []}),
        ("relaxation", {"devices": [0], "passing": [1, 0]}),
        ("relaxation", {"devices": [0], "passing": [None]}),
        ("relaxation", {"devices": [0], "passing": [4]}),
    ],
)
def test_malformed_witnesses_are_refused(name: str, witness: dict[str, Any]) -> None:
    """A witness of the wrong shape is refused in words, whatever it claims."""
    with pytest.raises(CertificateError):
        check(PROBLEM, certificate(1.0, name, witness))


@pytest.mark.parametrize("claim", [math.inf, math.nan])
def test_claims_that_are_no_numbers_are_refused(claim: float) -> None:
    """An infinite or undefined bound is refused."""
    with pytest.raises(CertificateError):
        check(PROBLEM, certificate(claim, "load", {"device": 0}))


def test_work_of_checking_is_bounded() -> None:
    """A check that does not end by its deadline is refused, not waited for."""
    with pytest.raises(CertificateError, match="too long"):
        check(
            PROBLEM, certificate(1e6, "relaxation", {"devices": [0, 1, 2, 3], "passing": []}), deadline=time.monotonic()
        )


def test_gap_is_zero_when_bound_and_value_meet() -> None:
    """The gap is relative to the bound, and 0 up to rounding."""
    assert certificate(100.0, "load", {"device": 0}).gap(100.0 + 1e-8) == 0
    assert certificate(100.0, "load", {"device": 0}).gap(110.0) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["load", "memory", "turnaround"])
def test_reason_names_the_device(name: str) -> None:
    """A certificate says in words which device binds."""
    assert "device 2 " in certificate(1.0, name, {"device": 2}).reason


def test_reason_of_an_unknown_kind_is_its_name() -> None:
    """What has no words of its own, such as a back end's bound, keeps its name."""
    assert certificate(1.0, "exact search", {}).reason == "exact search"
