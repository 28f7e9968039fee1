"""Neighbourhood search: parts of a schedule improved by a solver."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from instances import INSTANCES

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation, Pair
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify
from debubble.solver.neighbourhood import blocks, improve_by_neighbourhoods
from debubble.solver.tasks import tasks


def instance(name: str) -> Problem:
    return next(i for i in INSTANCES if i.name == name).problem()


def improved(problem: Problem, start: Schedule, *, seconds: float = 60, target: float = 0, seed: int = 0) -> Schedule:
    return improve_by_neighbourhoods(
        problem, start, seed=seed, deadline=time.monotonic() + seconds, target=target, backend="cbc"
    )


def test_a_poor_schedule_becomes_optimal() -> None:
    """From one micro-batch at a time to the optimal value, on a problem that is free as a whole in the end."""
    problem = instance("two-devices")
    found = improved(problem, named_schedule("naive", problem))
    assert verify(problem, found).valid
    assert simulate(problem, found).value == 216


def test_a_target_ends_the_search() -> None:
    """A tight cap on four devices: the search stops where a bound meets it."""
    problem = instance("linear-4x8-cap4-span")
    found = improved(problem, named_schedule("naive", problem), target=433)
    assert verify(problem, found).valid
    assert simulate(problem, found).value == 433


def test_an_optimal_schedule_is_kept() -> None:
    """Nothing is better than the optimum, and the search knows when it has seen everything."""
    problem = instance("fewer-microbatches-than-devices")
    start = improved(problem, named_schedule("zb-h1", problem))
    assert improved(problem, start, seed=1) == start


def test_no_time_changes_nothing() -> None:
    """A deadline that has passed gives the start back."""
    problem = instance("two-devices")
    start = named_schedule("naive", problem)
    assert improved(problem, start, seconds=-1) == start


def test_a_seed_decides_what_is_found() -> None:
    """Two searches with one seed that end by themselves find the same schedule."""
    problem = instance("two-devices")
    start = named_schedule("naive", problem)
    assert improved(problem, start, seed=3) == improved(problem, start, seed=3)


def test_improvements_are_reported() -> None:
    """Every better schedule, each better than the one before."""
    problem = instance("two-devices")
    seen: list[float] = []
    improve_by_neighbourhoods(
        problem,
        named_schedule("naive", problem),
        seed=0,
        deadline=time.monotonic() + 60,
        report=lambda schedule: seen.append(simulate(problem, schedule).value),
    )
    assert seen
    assert seen == sorted(set(seen), reverse=True)


def test_fused_backwards_of_the_start_are_split_where_that_is_as_good() -> None:
    """1F1B has fused backwards; the search may split them where that is allowed."""
    profile = Profile.uniform(stages=3, forward=2, backward_input=2, backward_weight=2)
    problem = Problem(profile, placement.linear(3), 4, 3)
    start = named_schedule("1f1b", problem)
    found = improved(problem, start)
    assert verify(problem, found).valid
    assert simulate(problem, found).value < simulate(problem, start).value


def test_pairs_of_the_start_survive_when_nothing_better_is_found() -> None:
    """Overlapped pairs that save time are not among the tasks; a start that has them is never made worse."""
    profile = Profile.uniform(stages=1, forward=2, backward_input=1, backward_weight=1, overlapped_pair=0.5)
    problem = Problem(profile, placement.linear(1), 2)
    first, second, one, other = (Operation(kind, 0, j) for kind in ("F", "BW") for j in (0, 1))
    start = Schedule.of([[first, Pair(second, one), other]])
    assert improved(problem, start) == start


def test_blocks_leave_free_what_runs_side_by_side() -> None:
    """Free tasks that follow each other form one block; every other task is its own."""
    assert blocks([[4, 2, 7, 1, 3]], {2, 7, 3}) == [[[4], [2, 7], [1], [3]]]


@pytest.mark.parametrize("name", ["zb-h1", "gpipe", "1f1b"])
def test_named_schedules_are_read_as_tasks(name: str) -> None:
    """Every task appears once, on its device, whatever kinds of backward the schedule uses."""
    problem = replace(instance("linear-4x8-cap8-makespan"), backward="any")
    model = tasks(problem)
    orders = model.orders(named_schedule(name, problem))
    assert [sorted(order) for order in orders] == [list(members) for members in model.on_device]
