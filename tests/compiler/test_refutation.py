"""Refutation: what no order of the kept devices reaches, no schedule reaches."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import optimum
from strategies import tiny_problems

from debubble.compiler import placement
from debubble.compiler.errors import CertificateError
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.compiler.refutation import refuted
from debubble.compiler.relaxation import most_kept
from debubble.compiler.route import prepared


@settings(derandomize=True, deadline=None, max_examples=50)
@given(tiny_problems(), st.permutations(range(3)), st.integers(1, 3), st.integers(0, 2))
def test_no_optimum_is_refuted(problem: Problem, order: list[int], whole: int, passing: int) -> None:
    """Whatever is kept whole and in passing, some order is as good as the schedule that the oracle finds."""
    devices = [device for device in order if device < problem.devices]
    kept = tuple(devices[:whole]), tuple(devices[whole : whole + passing])
    assume(len(kept[0] + kept[1]) <= most_kept(problem))
    best = optimum(problem, 3000)
    assume(best is not None)
    assert best is not None
    target = prepared(problem)[0].ticks(best * (1 + 1e-9)) + 1
    try:
        assert not refuted(problem, kept, target, 100_000)
    except CertificateError:
        assume(False)


def test_span_of_a_later_device_may_end_after_the_first_ones() -> None:
    """For span, a device that starts later may end later too: keeping the first in passing does not forbid it."""
    stages = tuple(Stage(forward=5.0, backward_input=1.0, backward_weight=weight) for weight in (0.0, 20.0, 0.0))
    problem = Problem(Profile(stages=stages), placement.linear(3), 1, objective="span", backward="split")
    assert optimum(problem) == 32
    assert not refuted(problem, ((1,), (0, 2)), 33, 10_000)
