"""CP-SAT behind the same face as the ILP."""

from __future__ import annotations

import time

import pytest
from instances import INSTANCES, Instance

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify
from debubble.solver.backend import BackendMissingError, Solution
from debubble.solver.cpsat import CpSat
from debubble.solver.exact import solve_exact
from debubble.solver.tasks import Tasks, tasks
from debubble.solver.windows import Windows

pytest.importorskip("ortools", reason="OR-tools is an extra that is not installed here")


def solve(model: Tasks, target: int, seconds: float = 60) -> Solution:
    return CpSat().solve(Windows(model, target), time.monotonic() + seconds)


SMALL = [
    "two-devices",
    "fewer-microbatches-than-devices",
    "unit-held-to-W-cap2",
    "linear-4x8-cap6-span",
    "memory-rises-at-B",
    "uneven-stages",
    "loop-3x4",
    "v-3x4",
    "bidirectional-4x8",
]


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in SMALL], ids=str)
def test_the_optimum_is_found_and_is_a_schedule(instance: Instance) -> None:
    """At the target of the optimal value there is a solution, and it is a valid schedule of that value."""
    problem = instance.problem()
    model = tasks(problem)
    solution = solve(model, model.ticks_up(instance.optimum))
    schedule = model.schedule(solution.order, solution.fusions, "cp-sat")
    assert verify(problem, schedule).valid
    assert simulate(problem, schedule).value == instance.optimum


HARDER = ["v-unit-cap3", "v-4x6", "bidirectional-unit-held-to-W-cap2", "linear-8x16-cap12-makespan"]


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in HARDER], ids=str)
def test_one_tick_below_the_optimum_is_infeasible(instance: Instance) -> None:
    """Where propagation leaves something open, CP-SAT closes it."""
    model = tasks(instance.problem())
    assert solve(model, model.ticks_up(instance.optimum) - 1).status == "infeasible"


def test_no_time_is_no_answer() -> None:
    """A deadline that has passed stops at once."""
    model = tasks(INSTANCES[0].problem())
    assert solve(model, 283, seconds=-1).status == "stopped"


def backwards(fused: float | None, rise: float, cap: float) -> set[str]:
    """The kinds that the best schedule uses on two devices, where backwards may be split or fused."""
    stage = Stage(
        forward=2.0, backward_input=3.0, backward_weight=2.0, backward=fused, memory=Memory(2.0, rise, -2.0 - rise)
    )
    problem = Problem(Profile(stages=(stage, stage), comm=1.0), placement.linear(2), 3, cap)
    start = named_schedule("naive", problem)
    result = solve_exact(problem, start, 0, backend="cp-sat", deadline=time.monotonic() + 60)
    assert result.complete
    by_cbc = solve_exact(problem, start, 0, deadline=time.monotonic() + 60)
    assert (result.lower_bound, result.complete) == (by_cbc.lower_bound, by_cbc.complete)
    return {operation.kind for _, operation in result.schedule.operations()}


def test_a_faster_fused_backward_is_used() -> None:
    """Fusing is a choice by micro-batch, and both models make it."""
    assert "BW" in backwards(fused=3.5, rise=-1.0, cap=4.0)


def test_memory_that_rises_at_b_can_force_fusing() -> None:
    """Under a cap that has no room for B's rise, only fused backwards are left."""
    assert backwards(fused=None, rise=1.0, cap=2.0) == {"F", "BW"}


def test_operations_that_take_no_time_keep_an_order() -> None:
    """Under a tight cap, the order of operations that take no time decides, and no circle of them is a solution."""
    stage = Stage(forward=0.0, backward_input=0.0, backward_weight=0.0)
    last = Stage(forward=1.0, backward_input=1.0, backward_weight=0.0)
    problem = Problem(Profile(stages=(stage, stage, last)), placement.linear(3), 4, (2.0, 1.0, 1.0), backward="split")
    model = tasks(problem)
    solution = solve(model, 8)
    assert verify(problem, model.schedule(solution.order, solution.fusions, "cp-sat")).valid


def test_a_missing_ortools_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendMissingError, match="cp-sat"):
        CpSat()


def test_names_carry_the_version() -> None:
    """A bound that rests on a solver's word names it."""
    assert any(character.isdigit() for character in CpSat().name)


def test_the_search_goes_from_a_poor_start_to_a_proof() -> None:
    """A tight cap on eight devices: the naive schedule of 3040 becomes the optimum of 672."""
    instance = next(i for i in INSTANCES if i.name == "linear-8x16-cap12-makespan")
    problem = instance.problem()
    start = named_schedule("naive", problem)
    result = solve_exact(problem, start, 0, backend="cp-sat", deadline=time.monotonic() + 250)
    assert (simulate(problem, result.schedule).value, result.lower_bound) == (672, 672)


def test_both_first_orders_exist_for_micro_batches_of_different_cost() -> None:
    """Without the number order, a short micro-batch goes first where that is better."""
    stage = Stage(forward=2.0, backward_input=2.0, backward_weight=2.0)
    profile = Profile(stages=(stage, stage), microbatches=(2.0, 1.0))
    problem = Problem(profile, placement.linear(2), 2, backward="split")
    result = solve_exact(problem, named_schedule("gpipe", problem), 0, backend="cp-sat", deadline=time.monotonic() + 60)
    assert result.schedule.orders[0][0] == Operation("F", 0, 1)
