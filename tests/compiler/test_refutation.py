"""Refutation: what no order of the kept devices reaches, no schedule reaches."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import optimum
from strategies import tiny_problems

from debubble.compiler.errors import CertificateError
from debubble.compiler.problem import Problem
from debubble.compiler.refutation import refuted
from debubble.compiler.relaxation import most_kept
from debubble.compiler.route import prepared


@settings(derandomize=True, deadline=None, max_examples=150)
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
