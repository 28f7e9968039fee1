"""Simulation: times and memory of known schedules, and agreement with the DAG."""

from __future__ import annotations

import itertools

import networkx
import pytest
from hypothesis import given, settings
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.dag import dag
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation, Pair, parts
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate

derandomized = settings(derandomize=True, deadline=None, max_examples=60)


def unit(p: int, m: int, *, memory: tuple[float, float, float] = (1, 0, -1), **options: object) -> Problem:
    profile = Profile.uniform(stages=p, forward=1, backward_input=1, backward_weight=1, memory=memory)
    return Problem(profile, placement.linear(p), m, **options)


@derandomized
@given(problem=problems(backward="split"))
def test_agrees_with_the_longest_path_of_the_dag(problem: Problem) -> None:
    """Every end is the longest path through the DAG with the device orders added (an independent computation)."""
    schedule = named_schedule("gpipe", problem)
    timeline = simulate(problem, schedule)
    graph = dag(problem)
    for order in schedule.orders:
        for before, after in itertools.pairwise(order):
            if not graph.has_edge(before, after):
                graph.add_edge(before, after, transfer=0.0)
    ends: dict[Operation, float] = {}
    for node in networkx.topological_sort(graph):
        arrivals = [ends[before] + graph.edges[before, node]["transfer"] for before in graph.predecessors(node)]
        ends[node] = max(arrivals, default=0.0) + graph.nodes[node]["duration"]
    found = {
        step: end
        for order, times in zip(schedule.orders, timeline.ends, strict=True)
        for step, end in zip(order, times, strict=True)
    }
    assert found == pytest.approx(ends)


@derandomized
@given(problem=problems())
def test_memory_returns_to_the_static_memory(problem: Problem) -> None:
    """When everything is done, every device holds its static memory again."""
    timeline = simulate(problem, named_schedule("gpipe", problem))
    for device, static in enumerate(problem.static_memory):
        curve = timeline.memory_curve(device)
        assert curve[-1][1] == pytest.approx(static)
        assert max(held for _, held in curve) == timeline.peak_memory[device]


@derandomized
@given(problem=problems())
def test_critical_path_is_tight(problem: Problem) -> None:
    """The critical path reaches the last end of the deciding device, and no step on it starts before the one before."""
    timeline = simulate(problem, named_schedule("gpipe", problem))
    path = timeline.critical_path()
    assert path[-1][3] in {ends[-1] for ends in timeline.ends}
    assert all(before[3] <= after[2] + 1e-9 for before, after in itertools.pairwise(path))


def test_gpipe_by_hand() -> None:
    """Two stages, two micro-batches, written out."""
    timeline = simulate(unit(2, 2), named_schedule("gpipe", unit(2, 2)))
    assert timeline.starts == [[0, 1, 5, 7], [1, 2, 3, 5]]
    assert (timeline.makespan, timeline.span) == (9, 9)
    assert timeline.idle_fraction == pytest.approx(1 / 3)
    assert timeline.bubble_ratio() == pytest.approx(0.5)


def test_transfer_time_is_added_between_devices_only() -> None:
    """A transfer delays the next device, and nothing within one."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1, comm=10)
    for place, makespan in ((placement.linear(4), 12 + 60), (placement.explicit((0, 0, 0, 1)), 12 + 20)):
        problem = Problem(profile, place, 1)
        assert simulate(problem, named_schedule("naive", problem)).makespan == makespan


def test_span_is_the_longest_device() -> None:
    """Span counts each device from its own first start."""
    problem = unit(4, 1, objective="span")
    timeline = simulate(problem, named_schedule("1f1b", problem))
    assert (timeline.makespan, timeline.span, timeline.value) == (12, 12, 12)
    problem = Problem(problem.profile, placement.linear(4), 1, objective="span", backward="split")
    timeline = simulate(problem, named_schedule("1f1b", problem))
    assert (timeline.makespan, timeline.span) == (9, 9)


def test_pair_counts_the_forward_first() -> None:
    """In an overlapped pair the forward's activation is held before the backward frees its own."""
    problem = unit(1, 2)
    f0, f1, bw0, bw1 = (Operation(kind, 0, j) for kind in ("F", "BW") for j in (0, 1))
    together = Schedule.of([[f0, Pair(f1, bw0), bw1]])
    apart = Schedule.of([[f0, bw0, f1, bw1]])
    assert simulate(problem, together).peak_memory == [2]
    assert simulate(problem, apart).peak_memory == [1]
    assert simulate(problem, together).makespan == simulate(problem, apart).makespan == 6


def test_memory_rises_at_b_and_never_at_a_fused_backward() -> None:
    """B's rise counts from its start; a fused backward has none."""
    for backward, peak in (("split", 3), ("fused", 2)):
        problem = unit(1, 1, memory=(2, 1, -3), backward=backward)
        assert simulate(problem, named_schedule("naive", problem)).peak_memory == [peak]


def test_sequence_respects_dependencies() -> None:
    """The execution's sequence never lists a step before one that it needs."""
    problem = unit(3, 4, backward="split")
    timeline = simulate(problem, named_schedule("zb-h1", problem))
    graph, seen = dag(problem), set()
    for device, index in timeline.execution.sequence:
        for operation in parts(timeline.schedule.orders[device][index]):
            assert set(graph.predecessors(operation)) <= seen
            seen.add(operation)
    assert seen == set(graph)
