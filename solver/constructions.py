"""Constructions: feasible schedules by list scheduling, near-linear in the number of operations.

Priorities are read from a periodic plan: one micro-batch's operations at fixed times, every other micro-batch's a
period later (the building block of Qi et al. 2024, "Pipeline parallelism with controllable memory"). The plan need not
be executable, `dispatch` only follows its order where it can. A plan has a handful of numbers; a short evolution over
them finds what suits the costs and caps at hand.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..compiler.named.classic import naive
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .dispatch import Rule, dispatch
from .evaluation import Model, Orders

AS_FILLER = 1e3
"""A weight gradient planned this many periods late gives way to everything else."""


@dataclass(frozen=True)
class Plan:
    """The numbers of a periodic plan; times in periods (the work of the busiest device on one micro-batch).

    A lane may be `ahead` x (planned time from its F to its B) + `extra` forwards ahead of its backwards.
    """

    slack: tuple[float, ...]
    """By chunk, what is added to each hop of the forward; then by chunk for the backward."""
    weight: float = AS_FILLER
    """From the end of B to W."""
    ahead: float = 1.0
    extra: float = 0.0
    patience: float = math.inf
    filler: float = 0.0


def construct(problem: Problem, *, seed: int = 0, deadline: float | None = None) -> Iterator[Schedule]:
    """Feasible schedules, each better than the one before, of a problem that passes `check_feasible`.

    Ends by itself after a number of trials that depends on the size, or when `deadline` (monotonic) has passed; the
    first schedule is given in any case.
    """
    model = Model(problem)
    best = math.inf
    for plan, orders, value in _trials(model, random.Random(seed)):
        if value < best:
            best = value
            yield model.schedule(orders, "list scheduling")
        if deadline is not None and time.monotonic() >= deadline:
            return
    if best == math.inf:
        yield naive(problem)


def _trials(model: Model, chance: random.Random) -> Iterator[tuple[Plan, Orders, float]]:
    """Plans with the orders they lead to and their values: first the likely ones, then mutations of the best."""
    ranked: list[tuple[float, int, Plan]] = []
    likely = list(likely_plans(model))
    trials = len(likely) + 300_000 // model.total
    for number in range(trials):
        if number < len(likely):
            plan = likely[number]
        elif not ranked:
            return
        else:
            plan = mutate(chance.choice(ranked)[2], chance)
        orders = dispatch(model, rule(model, plan))
        if orders is None:
            continue
        value = model.evaluate(orders)
        yield plan, orders, value
        ranked = sorted([*ranked, (value, -number, plan)])[:5]


LIKELY = (
    (1.33, -1, math.inf, 0.0),
    (0.7, 1, math.inf, 0.0),
    (1.33, 0, math.inf, 1.0),
    (2.66, -1, math.inf, math.inf),
    (2.0, 0, 1.0, 1.0),
    (2.33, -1, math.inf, 1.0),
    (1.0, 0, 1.0, math.inf),
    (2.33, 1, 1.0, 1.0),
    (1.66, 0, math.inf, 1.0),
    (1.66, 1, math.inf, 0.0),
    (1.33, 0, 1.0, 1.0),
    (2.0, -1, math.inf, 1.0),
)
"""(ahead, extra, patience, filler) of plans that together came closest to the optima of many problems."""


def likely_plans(model: Model) -> Iterator[Plan]:
    """Plans that are often good; where the cap leaves room for many forwards, those that take it come first."""
    chunks = max(1, model.stages // model.devices)
    plans = [Plan((0.0,) * (2 * chunks), AS_FILLER, *numbers) for numbers in LIKELY]
    if roominess(model) > 1.4:
        plans.sort(key=lambda plan: abs(plan.ahead - 2.66))
    yield from plans


def roominess(model: Model) -> float:
    """The caps in units of what 1F1B would hold: on each stage, one micro-batch for every stage from there on."""
    memory, placement, problem = model.problem.memories["F"], model.problem.placement, model.problem
    ratios = []
    for device, stages in enumerate(placement.copies):
        need = sum(memory[stage] * (model.stages - stage) * model.devices / model.stages for stage in stages)
        room = problem.caps[device] - problem.static_memory[device]
        ratios.append(room / need if need > 0 else math.inf)
    return min(ratios)


def mutate(plan: Plan, chance: random.Random) -> Plan:
    """A plan with one or two numbers changed."""
    for _ in range(chance.choice((1, 1, 2))):
        pick = chance.randrange(7)
        if pick <= 1:
            index = chance.randrange(len(plan.slack))
            changed = max(0.0, chance.choice((0.0, plan.slack[index] + chance.gauss(0, 0.1))))
            plan = replace(plan, slack=(*plan.slack[:index], changed, *plan.slack[index + 1 :]))
        elif pick == 2:
            near = min(plan.weight, 3.0) * (1 + chance.gauss(0, 0.2))
            plan = replace(plan, weight=chance.choice((AS_FILLER, 3 * chance.random(), near)))
        elif pick == 3:
            plan = replace(plan, ahead=max(0.3, plan.ahead + chance.gauss(0, 0.2)))
        elif pick == 4:
            plan = replace(plan, extra=plan.extra + chance.choice((-0.5, 0.5)))
        elif pick == 5:
            plan = replace(plan, patience=chance.choice((math.inf, 3.0, 1.0, 0.0, 2 * chance.random())))
        else:
            plan = replace(plan, filler=chance.choice((math.inf, 1.0, 0.0, 2 * chance.random())))
    return plan


def period(model: Model) -> float:
    """The work of the busiest device on one micro-batch (of each direction)."""
    kinds = range(3)
    return max(
        sum(model.duration[kind * model.size + lane * model.depth] for kind in kinds for lane in lanes)
        for lanes in model.lanes_of
    )


def rule(model: Model, plan: Plan) -> Rule:
    """The dispatching rule of a plan."""
    depth, size, stages, lanes = model.depth, model.size, model.stages, model.lanes
    unit = period(model)
    chunks = len(plan.slack) // 2
    starts = [[0.0] * lanes for _ in range(3)]
    ahead = [0] * lanes
    for base in range(0, lanes, stages):
        now = 0.0
        for lane in range(base, base + stages):
            first = lane * depth
            if lane > base:
                now += model.lag[first] + unit * plan.slack[(lane - base) * chunks // stages]
            starts[0][lane] = now
            now += model.duration[first]
        for lane in reversed(range(base, base + stages)):
            first = size + lane * depth
            if lane < base + stages - 1:
                now += model.lag[first] + unit * plan.slack[chunks + (lane - base) * chunks // stages]
            starts[1][lane] = now
            now += model.duration[first]
            starts[2][lane] = now + unit * plan.weight
            periods = (now - starts[0][lane]) / unit if unit > 0 else 1.0
            ahead[lane] = max(1, math.ceil(plan.ahead * periods + plan.extra - 1e-9))
    priority = [start + unit * rank for kind in starts for start in kind for rank in range(depth)]
    return Rule(priority, patience=plan.patience, filler=plan.filler, ahead=ahead)
