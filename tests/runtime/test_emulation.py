"""Emulated runs: real processes and messages, timed waits for compute."""

from __future__ import annotations

import dataclasses
import time

import msgspec
import pytest
from training import named_plan, plan_of, problem_of

from debubble.compiler.errors import InputError
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.profile import Link
from debubble.runtime import RunResult, run
from debubble.runtime.emulation import Clock, emulated_unit


def _with_unit(name: str, unit: str) -> Plan:
    """A short plan with a matrix of costs in a known unit, and values of 1000 bytes."""
    problem = problem_of(3, 4, place="bidirectional" if name == "chimera" else "linear")
    stages = tuple(msgspec.structs.replace(stage, output_bytes=1000) for stage in problem.profile.stages)
    link = Link(latency=1, bandwidth=500)
    profile = msgspec.structs.replace(problem.profile, stages=stages, comm=link, time_unit=unit)
    problem = dataclasses.replace(problem, profile=profile)
    return plan_of(problem, named_schedule(name, problem))


@pytest.fixture(scope="module")
def emulated() -> tuple[Plan, RunResult]:
    """Two steps of a plan in milliseconds, the second one recorded."""
    plan = _with_unit("zb-h1", "ms")
    result = run(plan, emulate=True, steps=2, trace=True)
    assert result is not None
    return plan, result


def test_no_step_is_faster_than_planned(emulated: tuple[Plan, RunResult]) -> None:
    """Operations and transfers take at least what the profile says, so the makespan is a bound."""
    plan, result = emulated
    assert result.unit_seconds == 1e-3
    assert len(result.step_seconds) == 2
    assert min(result.step_seconds) >= 1e-3 * plan.timeline.makespan


def test_every_step_is_recorded(emulated: tuple[Plan, RunResult]) -> None:
    """The trace holds every instruction of every rank once."""
    plan, result = emulated
    assert result.trace is not None
    for stream, events in zip(plan.streams, result.trace.events, strict=True):
        assert sorted(number for number, _, _ in events) == list(range(len(stream)))


def test_an_operation_lasts_until_its_end() -> None:
    """It begins when its inputs are due, and the process sleeps until it is over."""
    begin = time.monotonic()
    clock = Clock(begin)
    clock.advance(begin + 0.02, 0.01)
    assert clock.now == begin + 0.02 + 0.01
    assert time.monotonic() >= clock.now


def test_a_process_that_waits_for_a_core_is_not_late() -> None:
    """Time that passes without work is made up by a shorter sleep."""
    begin = time.monotonic()
    clock = Clock(begin)
    time.sleep(0.5)  # as if there was no core
    clock.advance(0.0, 0.6)
    assert clock.now - begin < 0.6 + 0.4


def test_the_json_leaves_the_trace_out(emulated: tuple[Plan, RunResult]) -> None:
    """What `--json` prints are numbers."""
    assert "trace" not in emulated[1].as_json()


def test_both_directions() -> None:
    """A bidirectional plan is emulated too."""
    plan = _with_unit("chimera", "ms")
    result = run(plan, emulate=True)
    assert result is not None
    assert min(result.step_seconds) >= 1e-3 * plan.timeline.makespan


def test_an_unknown_unit_makes_the_shortest_operation_twenty_milliseconds() -> None:
    """W takes 8 units, the least of all."""
    assert emulated_unit(named_plan("zb-h1", 4, 4)) == pytest.approx(0.02 / 8)


def test_an_emulation_cannot_be_checked() -> None:
    """There are no gradients to compare."""
    with pytest.raises(InputError, match="nothing that could be checked"):
        run(named_plan("1f1b", 2, 2), emulate=True, check=True)


def test_a_run_needs_a_model() -> None:
    """Without one it must be an emulation."""
    with pytest.raises(InputError, match="a run needs a model"):
        run(named_plan("1f1b", 2, 2))
