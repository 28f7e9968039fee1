"""Windows of start times, and what propagation refutes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import INSTANCES, Instance
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.operation import Operation
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import inputs, simulate
from debubble.solver.tasks import Tasks, tasks
from debubble.solver.windows import Refuted, Windows, lowest_target


def shuffled(problem: Problem, rng: random.Random) -> Schedule:
    """A random valid schedule in number order: what has its inputs, and all before it in number order, may be next."""
    model = tasks(problem)
    waits = {
        task: {first for first, second, _ in model.arcs if second == task} for task in range(len(model.operations))
    }
    orders: list[list[Operation]] = [[] for _ in range(problem.devices)]
    while waits:
        task = rng.choice([task for task, needs in waits.items() if not needs & waits.keys()])
        del waits[task]
        orders[model.devices[task]].append(model.operations[task])
    return Schedule.of(orders)


def contains(windows: Windows, model: Tasks, schedule: Schedule) -> bool:
    """True when the windows and decided orders allow the schedule as it is simulated."""
    timeline = simulate(model.problem, schedule)
    starts, places = {}, {}
    for order, times in zip(schedule.orders, timeline.starts, strict=True):
        for place, (operation, start) in enumerate(zip(order, times, strict=True)):
            starts[model.index[operation]] = round(start / model.tick)
            places[model.index[operation]] = place
    in_windows = all(windows.earliest[task] <= start <= windows.latest[task] for task, start in starts.items())
    return in_windows and all(
        places[other] < place
        for task, place in places.items()
        for other in model.on_device[model.devices[task]]
        if windows.before[task] >> other & 1
    )


@settings(derandomize=True, deadline=None, max_examples=150)
@given(problems(most_devices=3, most_microbatches=4, backward="split"), st.randoms(use_true_random=False))
def test_no_schedule_that_meets_the_target_is_lost(problem: Problem, rng: random.Random) -> None:
    """A schedule whose value is the target, under caps that are its own peaks, stays possible."""
    schedule = shuffled(problem, rng)
    timeline = simulate(problem, schedule)
    model = tasks(replace(problem, memory_cap=tuple(timeline.peak_memory)))
    windows = Windows(model, model.ticks_up(timeline.value))
    assert contains(windows, model, schedule)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(problems(most_devices=2, most_microbatches=3, backward="split"), st.randoms(use_true_random=False))
def test_probing_never_refutes_a_value_that_exists(problem: Problem, rng: random.Random) -> None:
    """Probing decides orders for good reasons only."""
    schedule = shuffled(problem, rng)
    timeline = simulate(problem, schedule)
    model = tasks(replace(problem, memory_cap=tuple(timeline.peak_memory)))
    Windows(model, model.ticks_up(timeline.value)).probe()


@pytest.mark.parametrize("instance", INSTANCES, ids=str)
def test_optimal_values_are_not_refuted(instance: Instance) -> None:
    """No bound by propagation is above the optimal value of another exact solver."""
    model = tasks(instance.problem())
    Windows(model, model.ticks_up(instance.optimum))


MET = [
    "linear-4x8-cap8-makespan",
    "linear-4x8-cap16-span",
    "linear-4x8-cap4-span",
    "linear-4x8-cap6-span",
    "linear-8x16-cap16-makespan",
    "memory-rises-at-B",
    "uneven-stages-and-caps",
    "bidirectional-4x8",
    "v-unit-cap8",
]


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in MET], ids=str)
def test_the_lowest_target_meets_the_optimum(instance: Instance) -> None:
    """Propagation alone proves many optimal values, tight caps and rising memory among them."""
    model = tasks(instance.problem())
    optimum = model.ticks_up(instance.optimum)
    assert lowest_target(model, 0, 2 * optimum) == optimum


def test_probing_refutes_more_than_propagation() -> None:
    """One tick below the optimum, windows alone leave something; both orders of some pair leave nothing."""
    model = tasks(next(i for i in INSTANCES if i.name == "unit-held-to-W-cap2").problem())
    windows = Windows(model, 40)
    with pytest.raises(Refuted):
        windows.probe()


def single() -> Tasks:
    """Two micro-batches on one device; the tasks are F0, B0, W0, F1, B1, W1, all of duration 1."""
    profile = Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1)
    return tasks(Problem(profile, placement.linear(1), 2, backward="split"))


def test_blocks_are_kept_in_order() -> None:
    """Tasks of a later block start after all of an earlier one; inside a block the order is open."""
    windows = Windows(single(), 6, [[[0], [1, 3], [2], [4], [5]]])
    assert windows.earliest == [0, 1, 3, 1, 4, 5]
    assert list(windows.open_pairs()) == [(1, 3)]


def test_an_order_decided_both_ways_is_refuted() -> None:
    """Two tasks cannot each run before the other."""
    windows = Windows(single(), 6)
    windows.order(3, 2)
    with pytest.raises(Refuted):
        windows.order(2, 3)


def test_inputs_come_before_outputs_in_every_window() -> None:
    """The earliest start of an operation allows for all that it needs."""
    problem = INSTANCES[0].problem()
    model = tasks(problem)
    windows = Windows(model, 300)
    for operation, task in model.index.items():
        for need in inputs(operation, problem.stages):
            made = model.index[need]
            assert windows.earliest[task] >= windows.earliest[made] + model.durations[made]
