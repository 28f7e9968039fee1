"""The integer form of problems."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.operation import Operation
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.solver.tasks import tasks


def uniform(devices: int = 2, microbatches: int = 2, **options: object) -> Problem:
    costs = {"forward": 1.5, "backward_input": 2.0, "backward_weight": 1.0, "comm": 0.5, **options}
    return Problem(Profile.uniform(stages=devices, **costs), placement.linear(devices), microbatches, backward="split")


def test_decimal_costs_are_exact() -> None:
    """The tick is the largest time that all costs are multiples of."""
    found = tasks(uniform())
    assert (found.tick, found.exact) == (0.5, True)
    assert found.durations[found.index[Operation("F", 1, 0)]] == 3


def test_costs_without_a_common_tick_are_rounded_down() -> None:
    """Irrational costs get a fine tick, and no task takes longer than its operation."""
    found = tasks(uniform(forward=2**0.5, backward_input=3**0.5))
    assert not found.exact
    assert all(
        duration * found.tick <= found.problem.duration(operation)
        for operation, duration in zip(found.operations, found.durations, strict=True)
    )


def test_free_costs_have_a_tick() -> None:
    """A problem in which nothing takes time still has one."""
    assert tasks(uniform(forward=0, backward_input=0, backward_weight=0, comm=0)).tick == 1


@settings(derandomize=True, deadline=None, max_examples=50)
@given(problems(most_microbatches=4))
def test_arcs_respect_the_order_of_tasks(problem: Problem) -> None:
    """Every dependency points from an earlier to a later task, so that one pass over them suffices."""
    assert all(first < second for first, second, _ in tasks(problem).arcs)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(problems(most_microbatches=4))
def test_memory_of_a_life_returns_to_nothing(problem: Problem) -> None:
    """What a forward takes, its backward frees, in integers too."""
    found = tasks(problem)
    assert all(life.levels[0] == life.levels[-1] == 0 for lives in found.lives for life in lives)


def backwards(fused: float | None, rise: float = -1.0, cap: float | None = None) -> set[str]:
    """The kinds of backward tasks where the search may choose; B and W take 2 and 1."""
    memory = Memory(2.0, rise, -2.0 - rise)
    stage = Stage(forward=1.0, backward_input=2.0, backward_weight=1.0, backward=fused, memory=memory)
    found = tasks(Problem(Profile(stages=(stage,)), placement.linear(1), 1, cap))
    return {operation.kind for operation in found.operations} - {"F"} | ({"either"} if found.fusions else set())


@pytest.mark.parametrize(
    ("fused", "rise", "cap", "kinds"),
    [
        (None, -1.0, 2.0, {"B", "W"}),
        (3.5, -1.0, 2.0, {"B", "W"}),
        (2.5, -1.0, None, {"B", "W", "either"}),
        (2.0, -1.0, None, {"BW"}),
        (None, 1.0, 5.0, {"B", "W", "either"}),
        (None, 1.0, None, {"B", "W"}),
    ],
)
def test_backwards_are_fused_only_where_it_can_pay(fused: float, rise: float, cap: float, kinds: set[str]) -> None:
    """A choice is left where the fused backward saves time, or where a cap meets memory that rises at B."""
    assert backwards(fused, rise, cap) == kinds


def test_costs_that_differ_keep_no_number_order() -> None:
    """Micro-batches of different cost may overtake each other."""
    profile = msgspec.structs.replace(uniform().profile, microbatches=(1.0, 2.0))
    found = tasks(Problem(profile, placement.linear(2), 2, backward="split"))
    assert not any(
        found.operations[first].microbatch != found.operations[second].microbatch for first, second, _ in found.arcs
    )


def test_directions_keep_no_order_between_them() -> None:
    """On the middle device of an odd number, both directions share a stage, and either may be ahead."""
    profile = Profile.uniform(stages=3, forward=1, backward_input=1, backward_weight=1)
    found = tasks(Problem(profile, placement.bidirectional(3), 4, backward="split"))
    down, up = found.index[Operation("F", 1, 1)], found.index[Operation("F", 1, 2)]
    before, after = found.closure
    assert not (before[up] | after[up]) >> down & 1


def test_pairs_that_save_time_are_not_covered() -> None:
    """The tasks have no overlapped pairs, and say so where these could be better."""
    assert tasks(uniform(overlapped_pair=1.0)).covers
    assert not tasks(uniform(overlapped_pair=0.9)).covers
