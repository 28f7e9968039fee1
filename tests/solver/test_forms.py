"""Forms: local search splits and fuses backwards, and makes and takes apart pairs, where that pays."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from oracle import optimum
from overlaps import NAMES, cost_set

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Pair, parts
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import require_valid
from debubble.solver.improvement import improve
from debubble.solver.search import search


def tiny(place: str, microbatches: int, *fused: float, ratio: float | None = None) -> Problem:
    """Two devices, stages with F = 2, B = 3, W = 2 and fused backwards as given, held to W."""
    where = placement.named(place, devices=2)
    stages = tuple(
        Stage(forward=2, backward_input=3, backward_weight=2, backward=duration, memory=Memory(1, 0, -1))
        for duration in fused
    )
    return Problem(Profile(stages=stages, overlapped_pair=ratio), where, microbatches)


def improved(problem: Problem, schedule: Schedule, target: float) -> tuple[Schedule, float]:
    """What local search makes of a schedule until it reaches a value, and the value it has."""
    found = improve(problem, schedule, seed=0, deadline=time.monotonic() + 60, target=target)
    require_valid(problem, found)
    return found, simulate(problem, found).value


def kinds(schedule: Schedule) -> set[str]:
    """The kinds of operations in a schedule, and "pair" where it has one."""
    steps = [step for order in schedule.orders for step in order]
    return {operation.kind for step in steps for operation in parts(step)} | {
        "pair" for s in steps if isinstance(s, Pair)
    }


def test_backwards_are_fused_where_that_is_quicker() -> None:
    """Where a fused backward takes 3 instead of 5, every order of split ones is worse, and the optimum is found."""
    problem = tiny("linear", 3, 3, 3)
    best = optimum(problem)
    assert best is not None
    assert best < (optimum(replace(problem, backward="split")) or 0)
    found, value = improved(problem, named_schedule("zb-h1", problem), best)
    assert (value, "BW" in kinds(found)) == (pytest.approx(best), True)


def test_backwards_are_split_where_that_is_quicker() -> None:
    """From 1F1B with fused backwards the optimum of split ones is found."""
    problem = tiny("linear", 3, 5, 5)
    best = optimum(problem)
    assert best is not None
    assert best < (optimum(replace(problem, backward="fused")) or 0)
    found, value = improved(problem, named_schedule("1f1b", problem), best)
    assert (value, "B" in kinds(found)) == (pytest.approx(best), True)


def test_some_backwards_are_fused_and_some_split() -> None:
    """Where only the first stage, whose gradients nobody waits for, is quicker fused, the optimum has both forms."""
    problem = tiny("linear", 2, 3, 5)
    best = optimum(problem)
    assert best is not None
    others = [optimum(replace(problem, backward=backward)) or 0 for backward in ("split", "fused")]
    assert best < min(others)
    found, value = improved(problem, named_schedule("gpipe", problem), best)
    assert (value, kinds(found)) == (pytest.approx(best), {"F", "B", "W", "BW"})


@pytest.mark.parametrize(
    ("place", "microbatches", "cap"), [("linear", 3, None), ("linear", 3, 2), ("bidirectional", 4, 2)]
)
def test_pairs_are_made_where_they_save_time(place: str, microbatches: int, cap: float | None) -> None:
    """With pairs at half of their parts the optimum has some, and it is found from a schedule that has none."""
    problem = replace(tiny(place, microbatches, 5, 5, ratio=0.5), backward="fused", memory_cap=cap)
    best = optimum(problem)
    assert best is not None
    assert best < (optimum(replace(problem, profile=tiny(place, microbatches, 5, 5).profile)) or 0)
    found, value = improved(problem, named_schedule("naive", problem), best)
    assert (value, "pair" in kinds(found)) == (pytest.approx(best), True)


def test_pairs_that_cost_time_are_taken_apart() -> None:
    """With pairs at 1.5 of their parts DualPipe becomes at least as good as without any."""
    problem, named = cost_set("bidirectional", 0)
    dear = Profile(stages=problem.profile.stages, comm=problem.profile.comm, overlapped_pair=1.5)
    problem = replace(problem, profile=dear)
    apart = Schedule.of([operation for step in order for operation in parts(step)] for order in named.orders)
    target = simulate(problem, apart).value
    assert improved(problem, named, target)[1] <= target < simulate(problem, named).value


@pytest.mark.parametrize("place", NAMES)
@pytest.mark.parametrize("seed", range(10))
def test_dualpipe_is_improved_at_its_own_memory(place: str, seed: int) -> None:
    """For ten random cost sets with costed pairs, local search finds better orders than the hand-written ones."""
    problem, named = cost_set(place, seed)
    value = simulate(problem, named).value
    assert improved(problem, named, value * (1 - 1e-6))[1] < value


@pytest.mark.parametrize("place", NAMES)
def test_the_search_is_never_worse_than_dualpipe(place: str) -> None:
    """It starts from the hand-written schedules that fit."""
    problem, named = cost_set(place, 3)
    assert search(problem, time_limit=3).value <= simulate(problem, named).value


def test_a_pair_holds_both_its_activations() -> None:
    """With room for one activation no pair fits, whatever it would save."""
    problem = replace(tiny("linear", 3, 5, 5, ratio=0.5), memory_cap=1)
    found, _ = improved(problem, named_schedule("naive", problem), optimum(problem) or 0)
    assert "pair" not in kinds(found)
