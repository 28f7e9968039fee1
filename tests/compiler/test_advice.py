"""Advice: warnings that say what is slow or doubtful, and only then."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from damage import random_orders, random_problem, schedule_of
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler import advice, placement
from debubble.compiler.diagnostic import Report
from debubble.compiler.instruction import parse
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.compiler.simulation import simulate

PROBLEM = Problem(Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1), placement.linear(2), 2)


def stage(forward: float, backward: float) -> Stage:
    return Stage(forward=forward, backward_input=backward / 2, backward_weight=backward / 2)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([stage(473, 90), stage(30, 60), stage(40, 80)], ["stage 0 has 87% of all forward time"]),
        ([stage(1, 2), stage(5, 0.4)], ["backward of stage 1 takes 0.4", "stage 1 has 83%"]),
        ([stage(0.1, 2), stage(0.1, 2)], ["timed without waiting", "timed without waiting"]),
        ([stage(1, 2), stage(0, 0), stage(1, 2)], []),
        ([stage(1, 2)], []),
    ],
)
def test_doubtful_profiles(stages: list[Stage], words: list[str]) -> None:
    """One stage with nearly all the time, a backward or a forward far too short; an empty stage is no doubt."""
    report = Report()
    advice.doubt(Profile(stages=tuple(stages)), report)
    texts = [warning.message for warning in report.warnings]
    assert len(texts) == len(words)
    assert all(any(word in text for text in texts) for word in words)


def test_idle_time_that_a_reorder_avoids() -> None:
    """One micro-batch after the other leaves time that pipelining gains, if memory allows."""
    report = Report()
    rows = [["0F0", "0F1", "0BW0", "0BW1"], ["1F0", "1BW0", "1F1", "1BW1"]]
    advice.idle(simulate(PROBLEM, schedule_of(rows)), report)
    assert report.warnings == []
    slow = [["0F0", "0BW0", "0F1", "0BW1"], ["1F0", "1BW0", "1F1", "1BW1"]]
    advice.idle(simulate(PROBLEM, schedule_of(slow)), report)
    assert report.warnings == []  # one activation at a time leaves no room for another forward
    late = [["0F0", "0F1", "0BW0", "0BW1"], ["1F0", "1F1", "1BW1", "1BW0"]]
    advice.idle(simulate(PROBLEM, schedule_of(late)), report)
    assert [warning.code for warning in report.warnings] == ["avoidable-idle"]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_gain_is_real(rng: object) -> None:
    """The makespan that is promised is never below the load of a device, nor claimed when it is no gain."""
    problem = random_problem(rng)  # type: ignore[arg-type]
    timeline = simulate(problem, schedule_of(random_orders(rng, problem)))  # type: ignore[arg-type]
    report = Report()
    advice.idle(timeline, report)
    promised = [float(re.findall(r"can be ([\d.]+)", warning.message)[0]) for warning in report.warnings]
    assert all(max(timeline.busy) <= value < timeline.makespan for value in promised)


def receives(first: str, second: str, microbatches: int = 2) -> list[str]:
    problem = replace(PROBLEM, microbatches=microbatches)
    streams = [tuple(map(parse, text.split(", "))) for text in (first, second)]
    rows = [[str(i) for i in stream if " " not in str(i)] for stream in streams]
    report = Report()
    advice.receives(problem, simulate(problem, schedule_of(rows)).execution, streams, report, str)
    return [f"{warning.code} {warning.operation}" for warning in report.warnings]


def test_receives_in_time() -> None:
    """Posted when the device is free, and not before a send that comes first: nothing to say."""
    first = "0F0, send 0F0 >1, 0F1, send 0F1 >1, recv 1B0 <1 [0], wait 1B0, 0BW0, recv 1B1 <1 [0], wait 1B1, 0BW1"
    second = "recv 0F0 <0 [0], wait 0F0, 1F0, recv 0F1 <0 [1], 1BW0, send 1B0 >0, wait 0F1, 1F1, 1BW1, send 1B1 >0"
    assert receives(first, second) == []


def test_late_receive() -> None:
    """Device 1 posts its second receive after its backward, while device 0 has a third forward to do."""
    first = (
        "0F0, send 0F0 >1, 0F1, send 0F1 >1, 0F2, send 0F2 >1, recv 1B0 <1 [0], wait 1B0, 0BW0, recv 1B1 <1 [0], "
        "wait 1B1, 0BW1, recv 1B2 <1 [0], wait 1B2, 0BW2"
    )
    second = (
        "recv 0F0 <0 [0], wait 0F0, 1F0, 1BW0, send 1B0 >0, recv 0F1 <0 [0], wait 0F1, 1F1, 1BW1, send 1B1 >0, "
        "recv 0F2 <0 [0], wait 0F2, 1F2, 1BW2, send 1B2 >0"
    )
    assert receives(first, second, microbatches=3) == ["late-receive recv 0F1 <0 [0]"]


def test_early_receive() -> None:
    """A receive of the gradient before the send that it depends on blocks that send on a shared communicator."""
    first = "recv 1B0 <1 [0], 0F0, send 0F0 >1, 0F1, send 0F1 >1, wait 1B0, 0BW0, recv 1B1 <1 [0], wait 1B1, 0BW1"
    second = "recv 0F0 <0 [0], wait 0F0, 1F0, recv 0F1 <0 [1], 1BW0, send 1B0 >0, wait 0F1, 1F1, 1BW1, send 1B1 >0"
    assert receives(first, second) == ["early-receive recv 1B0 <1 [0]"]
