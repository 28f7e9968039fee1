"""Improvement: never worse, always valid, and strong on tight caps."""

from __future__ import annotations

import random
import time

import pytest
from capped import capped, linear
from hypothesis import given, settings
from instances import INSTANCES

from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import require_valid
from debubble.solver.constructions import construct
from debubble.solver.evaluation import Model
from debubble.solver.forms import Forms
from debubble.solver.graph import Graph
from debubble.solver.improvement import improve


@settings(max_examples=25, derandomize=True, deadline=None)
@given(capped())
def test_the_result_is_valid_and_never_worse(problem: Problem) -> None:
    """Whatever the problem, cut off at any time."""
    schedule = next(construct(problem, seed=0, deadline=0.0))
    improved = improve(problem, schedule, seed=0, deadline=time.monotonic() + 0.05, target=0.0)
    require_valid(problem, improved)
    assert simulate(problem, improved).value <= simulate(problem, schedule).value


@settings(max_examples=50, derandomize=True, deadline=None)
@given(capped())
def test_a_changed_graph_is_timed_as_a_new_one(problem: Problem) -> None:
    """Ends, tails and value after any changes, those taken back included, are those of a graph made afresh."""
    model = Model(problem)
    orders = model.orders(next(construct(problem, seed=0, deadline=0.0)))
    graph, forms, chance = Graph(model, orders), Forms(model), random.Random(0)
    for _ in range(30):
        device = chance.randrange(problem.devices)
        order = graph.orders[device]
        index = chance.randrange(len(order))
        pair = order[index : index + 2]
        form = forms.move(graph, (device, index, index), chance)
        if form is not None:
            replaced = order[form.low : form.high]
            graph.form(form.steps)
            graph.put(*form[:4])
            if chance.random() < 0.3:
                graph.form(form.former)
                graph.put(device, form.low, form.low + len(form.window), replaced)
        elif len(pair) == 2 and graph.crossable(*pair):
            graph.put(device, index, index + 2, pair[::-1])
    assert graph.value == model.evaluate(graph.numbers())
    fresh = Graph(model, graph.numbers())
    for order in graph.orders:
        for x in order:
            assert graph.ends[x] == fresh.ends[x]
            assert graph.tails[x] == pytest.approx(fresh.tails[x])


def test_a_proven_bound_stops_the_search() -> None:
    """A schedule that meets its target is given back at once."""
    problem = linear(4, 8, 8)
    schedule = named_schedule("zb-h1", problem)
    assert improve(problem, schedule, seed=0, deadline=time.monotonic() + 60, target=283) is schedule


def test_every_better_schedule_is_reported() -> None:
    """The last report is the result."""
    problem = linear(4, 8, 6)
    reports: list[Schedule] = []
    schedule = named_schedule("naive", problem)
    deadline = time.monotonic() + 60
    improved = improve(problem, schedule, seed=0, deadline=deadline, target=340, report=reports.append)
    assert reports[-1] is improved
    values = [simulate(problem, report).value for report in reports]
    assert values == sorted(values, reverse=True)


def test_a_seed_gives_the_same_schedule_again() -> None:
    """A search that ends by its target does not depend on the clock."""
    problem = linear(4, 8, 6)
    schedule = next(construct(problem, seed=0))
    first, second = (improve(problem, schedule, seed=7, deadline=time.monotonic() + 60, target=331) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "name",
    [
        "linear-4x8-cap4-span",
        "linear-4x8-cap6-span",
        "linear-8x16-cap12-makespan",
        "uneven-stages-and-caps",
        "v-unit-cap3",
        "v-unit-cap7",
        "v-3x4",
        "bidirectional-unit-held-to-B-cap2",
        "bidirectional-unit-held-to-W-cap2",
        "bidirectional-unit-held-to-W-cap3",
    ],
)
def test_proven_optima_are_reached(name: str) -> None:
    """Under tight caps, on every placement, without any exact search (values from an independent exact solver)."""
    instance = next(instance for instance in INSTANCES if instance.name == name)
    problem = instance.problem()
    schedule = next(construct(problem, seed=0))
    deadline = time.monotonic() + 60
    improved = improve(problem, schedule, seed=0, deadline=deadline, target=instance.optimum)
    require_valid(problem, improved)
    assert simulate(problem, improved).value == instance.optimum
