"""The ILP, solved by CBC: it allows what the problem allows, and nothing else."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from instances import INSTANCES, Instance

from debubble.compiler import placement
from debubble.compiler.operation import Operation
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify
from debubble.solver.backend import Answer, Cbc
from debubble.solver.ilp import Ilp
from debubble.solver.tasks import Tasks, tasks
from debubble.solver.windows import Windows


class HeadsAndTails(Windows):
    """Windows from dependencies alone, so that the model has to find everything else."""

    def propagate(self) -> None:
        self._dependencies()
        self._extent()
        self._dependencies()


def solved(windows: Windows, seconds: float = 60) -> tuple[Answer, Schedule | None]:
    ilp = Ilp(windows)
    answer = Cbc().solve(ilp.model, time.monotonic() + seconds)
    if not answer.values:
        return answer, None
    return answer, windows.tasks.schedule(ilp.order(answer.values), ilp.fusions(answer.values), "ilp")


def model_of(name: str) -> tuple[Tasks, int]:
    instance = next(i for i in INSTANCES if i.name == name)
    model = tasks(instance.problem())
    return model, model.ticks_up(instance.optimum)


SMALL = ["two-devices", "fewer-microbatches-than-devices", "unit-held-to-W-cap2", "linear-4x8-cap8-span"]


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in SMALL], ids=str)
def test_the_optimum_is_found_and_is_a_schedule(instance: Instance) -> None:
    """At the target of the optimal value the model has a solution, and it is a valid schedule of that value."""
    problem = instance.problem()
    model = tasks(problem)
    _, schedule = solved(Windows(model, model.ticks_up(instance.optimum)))
    assert schedule is not None
    assert verify(problem, schedule).valid
    assert simulate(problem, schedule).value == instance.optimum


@pytest.mark.parametrize("name", ["two-devices", "fewer-microbatches-than-devices"])
def test_the_model_alone_refutes_what_is_below_the_optimum(name: str) -> None:
    """With windows from dependencies only, CBC finds one tick less infeasible."""
    model, optimum = model_of(name)
    answer, _ = solved(HeadsAndTails(model, optimum - 1))
    assert answer.status == "infeasible"


def test_the_model_minimises_the_value() -> None:
    """With a target above it, the optimal value is still the model's."""
    model, optimum = model_of("two-devices")
    answer, _ = solved(Windows(model, optimum + 5))
    assert (answer.status, answer.bound) == ("optimal", optimum)


def choice(*, fused: float | None, rise: float, cap: float | None, microbatches: int = 2) -> Problem:
    """Two devices whose backwards may be split or fused."""
    stage = Stage(
        forward=2.0, backward_input=3.0, backward_weight=2.0, backward=fused, memory=Memory(2.0, rise, -2.0 - rise)
    )
    return Problem(Profile(stages=(stage, stage), comm=1.0), placement.linear(2), microbatches, cap)


def least(problem: Problem) -> tuple[float, Schedule]:
    """The optimal value and schedule by the model."""
    model = tasks(problem)
    answer, schedule = solved(Windows(model, 60))
    assert answer.status == "optimal"
    assert schedule is not None
    assert verify(problem, schedule).valid
    assert answer.bound is not None
    assert simulate(problem, schedule).value == answer.bound * model.tick
    return simulate(problem, schedule).value, schedule


def test_a_faster_fused_backward_is_used() -> None:
    """Where the fused backward saves time, the choice is at least as good as either way alone, and here better."""
    problem = choice(fused=3.5, rise=-1.0, cap=4.0, microbatches=3)
    value, schedule = least(problem)
    assert any(operation.kind == "BW" for _, operation in schedule.operations())
    assert value <= min(least(replace(problem, backward=way))[0] for way in ("split", "fused"))


def test_memory_that_rises_at_b_can_force_fusing() -> None:
    """Under a cap that has no room for B's rise, only fused backwards are left."""
    _, schedule = least(choice(fused=None, rise=1.0, cap=2.0))
    assert {operation.kind for _, operation in schedule.operations()} == {"F", "BW"}


def test_micro_batches_of_different_cost_may_overtake() -> None:
    """Without the number order, a short micro-batch goes first where that is better."""
    stage = Stage(forward=2.0, backward_input=2.0, backward_weight=2.0)
    profile = Profile(stages=(stage, stage), microbatches=(2.0, 1.0))
    problem = Problem(profile, placement.linear(2), 2, backward="split")
    _, schedule = least(problem)
    assert schedule.orders[0][0] == Operation("F", 0, 1)
