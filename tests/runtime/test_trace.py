"""Traces of runs, from events that are made up from the plan's own times."""

from __future__ import annotations

import json

import pytest
from training import named_plan

from debubble.compiler.instruction import Compute, Receive, Wait
from debubble.compiler.plan import Plan
from debubble.runtime.trace import Event, Trace


def _recorded(plan: Plan, unit: float, begin: float = 7.0, stretch: float = 1.0) -> list[list[Event]]:
    """What perfect ranks would record: every wait lasts until its value arrives, nothing else takes time."""
    recorded = []
    for device, stream in enumerate(plan.streams):
        events: list[Event] = []
        times = zip(plan.timeline.starts[device], plan.timeline.ends[device], strict=True)
        now = begin
        received = {i.value for i in stream if isinstance(i, Receive)}
        following = [time for time in plan.timeline.starts[device]] + [0.0]
        done = 0
        for number, instruction in enumerate(stream):
            start = now
            if isinstance(instruction, Compute):
                first, last = next(times)
                start, now = begin + unit * stretch * first, begin + unit * stretch * last
                done += 1
            elif isinstance(instruction, Wait) and instruction.value in received:
                now = max(now, begin + unit * stretch * following[done])
            events.append((number, start, now))
        recorded.append(events)
    return recorded


@pytest.fixture
def plan() -> Plan:
    return named_plan("zb-h1", 4, 8)


def test_a_perfect_run_is_the_plan(plan: Plan) -> None:
    """The measured timeline has the planned makespan, and the planned idle time."""
    timeline = Trace.of(plan, _recorded(plan, 0.01), 0.01).timeline(plan)
    assert timeline.makespan == pytest.approx(plan.timeline.makespan)
    assert timeline.idle_fraction == pytest.approx(plan.timeline.idle_fraction)


def test_an_unknown_unit_is_fitted(plan: Plan) -> None:
    """Without a known unit of time the computing times of plan and run are made equal."""
    assert Trace.of(plan, _recorded(plan, 0.25), None).unit == pytest.approx(0.25)


@pytest.mark.parametrize(("unit", "noted"), [(None, True), (0.25, False)])
def test_a_fitted_unit_is_said(plan: Plan, unit: float | None, noted: bool) -> None:
    """A summary whose planned times are scaled to the measured ones says so."""
    assert ("planned times are scaled" in Trace.of(plan, _recorded(plan, 0.25), unit).summary(plan)) == noted


def test_idle_time_has_causes(plan: Plan) -> None:
    """On a perfect run warm-up, waiting and drain are all there is, and make up the idle time."""
    trace = Trace.of(plan, _recorded(plan, 0.01), 0.01)
    for device, idle in enumerate(trace.idle(plan)):
        assert idle.overhead == pytest.approx(0, abs=1e-9)
        whole = idle.warm_up + idle.waiting + idle.drain
        assert whole == pytest.approx(0.01 * (plan.timeline.makespan - plan.timeline.busy[device]))


def test_slow_operations_are_named(plan: Plan) -> None:
    """A summary says what took longer than planned."""
    summary = Trace.of(plan, _recorded(plan, 0.01, stretch=1.5), 0.01).summary(plan)
    assert "(+50.0%)" in summary
    assert "F of stage 2 took 1.50 times its planned time" in summary


def test_the_trace_has_two_rows_a_rank(plan: Plan) -> None:
    """Every step is there twice: as planned and as measured."""
    trace = json.loads(Trace.of(plan, _recorded(plan, 0.01), 0.01).as_json(plan))["traceEvents"]
    steps = [event for event in trace if event["ph"] == "X" and event["cat"] in ("F", "B", "W")]
    rows = {(event["pid"], event["tid"], event["name"]) for event in steps}
    assert len(steps) == len(rows) == 2 * 4 * 3 * 8


def test_the_times_of_a_device_sum_to_the_makespan(plan: Plan) -> None:
    """All in milliseconds: busy, warm-up, waiting, overhead and drain."""
    lines = Trace.of(plan, _recorded(plan, 0.01), 0.01).summary(plan).splitlines()
    makespan = float(lines[0].split()[1])
    rows = [[float(word) for word in line.split()[1:]] for line in lines[3:7]]
    assert lines[0].split()[2] == "ms"
    assert [sum(row) for row in rows] == pytest.approx([makespan] * 4, abs=0.05)
