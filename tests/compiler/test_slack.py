"""The slack of steps, and the arrivals that it rests on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.arrival import Arrival, arrivals, last_arrival
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.simulation import Timeline, simulate
from debubble.compiler.slack import slacks


def _timeline(objective: str = "makespan") -> Timeline:
    profile = Profile.uniform(stages=2, forward=2, backward_input=3, backward_weight=1, comm=1)
    problem = Problem(profile, placement.linear(2), 2, objective=objective)
    return simulate(problem, named_schedule("gpipe", problem))


def _value(timeline: Timeline, found: list[list[tuple[Arrival, ...]]], late: tuple[int, int], delay: float) -> float:
    """The objective when one step starts later than it could, and every other as soon as it can."""
    ends: list[list[float]] = [[] for _ in timeline.starts]
    first: list[float] = []
    for device, index in timeline.execution.sequence:
        start = ends[device][-1] if index else 0.0
        for need in found[device][index]:
            start = max(start, ends[need.device][need.step] + need.transfer)
        start += delay if (device, index) == late else 0.0
        if not index:
            first.append(start)
        ends[device].append(start + timeline.ends[device][index] - timeline.starts[device][index])
    return max(ended[-1] for ended in ends)


def test_arrivals_name_the_maker_and_the_transfer() -> None:
    """The backward of stage 0 waits for its own forward and for the gradient of stage 1."""
    found = arrivals(_timeline())
    assert found[0][2] == (Arrival(0, 0, 0.0, 2.0), Arrival(1, 2, 1.0, 12.0))
    assert last_arrival(found[0][2]) == Arrival(1, 2, 1.0, 12.0)


def test_the_first_forward_needs_nothing() -> None:
    """It has no arrival to wait for."""
    assert last_arrival(arrivals(_timeline())[0][0]) is None


def test_slack_by_hand() -> None:
    """GPipe on two devices: F 0-2 2-4 | BW 12-16 16-20 on device 0; F 3-5 5-7 | BW 7-11 11-15 on device 1.

    Device 1 is fed just in time and feeds back just in time, so that nothing can slip.
    """
    timeline = _timeline()
    assert slacks(timeline, arrivals(timeline)) == [[0, 0, 0, 0], [0, 0, 0, 0]]


def test_a_device_that_ends_early_has_slack() -> None:
    """One micro-batch: the weight gradient of the last stage may end with all, at 13, instead of at 9."""
    profile = Profile.uniform(stages=2, forward=2, backward_input=3, backward_weight=1, comm=1)
    problem = Problem(profile, placement.linear(2), 1, backward="split")
    timeline = simulate(problem, named_schedule("zb-h1", problem))
    assert timeline.makespan == 13
    assert slacks(timeline, arrivals(timeline)) == [[0, 0, 0], [0, 0, 4]]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(problems(most_devices=4, most_microbatches=4), st.data())
def test_slack_is_how_far_a_step_can_slip(problem: Problem, data: st.DataObject) -> None:
    """Late by its slack, a step leaves the makespan as it is; a little later, the makespan grows."""
    problem = problem.with_objective("makespan")
    timeline = simulate(problem, named_schedule("naive", problem))
    found = arrivals(timeline)
    slack = slacks(timeline, found)
    device, index = data.draw(st.sampled_from(timeline.execution.sequence))
    before = _value(timeline, found, (device, index), 0.0)
    assert before == pytest.approx(timeline.makespan)
    assert _value(timeline, found, (device, index), slack[device][index]) == pytest.approx(before)
    assert _value(timeline, found, (device, index), slack[device][index] + 1) == pytest.approx(before + 1)


def test_slack_under_span_is_bound_by_each_device() -> None:
    """With the objective span, the last stage may end 13 after its own start, 3: its W may be 7 late, not 4."""
    profile = Profile.uniform(stages=2, forward=2, backward_input=3, backward_weight=1, comm=1)
    problem = Problem(profile, placement.linear(2), 1, objective="span", backward="split")
    timeline = simulate(problem, named_schedule("zb-h1", problem))
    assert timeline.span == 13
    assert slacks(timeline, arrivals(timeline)) == [[0, 0, 0], [0, 0, 7]]
