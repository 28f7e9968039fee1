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
from itertools import product
from typing import TypeAlias

from ..compiler.named.classic import naive
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .dispatch import Rule, dispatch
from .evaluation import Model, Orders

UNLIKE_TRIALS = 5000
"""The most trials where micro-batches differ, so that the order in which they enter matters; else a fifth of that."""
SURVIVORS = 6
"""Plans that are mutated further."""
REENTRY = 0.6
"""How often a mutation changes the order in which micro-batches that differ enter."""
AS_FILLER = 1e3
"""A weight gradient planned this many periods late gives way to everything else."""

Entry: TypeAlias = tuple[tuple[int, ...], ...]
"""By direction, the ranks of the micro-batches in the order in which they enter."""


@dataclass(frozen=True)
class Plan:
    """The numbers of a periodic plan; times in units of the work of the busiest device on one micro-batch.

    A leg is a chunk's forward or backward: legs 0..v-1 the forwards, v..2v-1 the backwards of chunks 0..v-1. With one
    chunk and equal stages, stage s may be `ahead` x (stages - s) + `extra` forwards ahead of its backwards; in general
    the way from its F to its B and the way of stage 0 take the place of stages - s and stages.
    """

    slack: tuple[float, ...]
    """By leg, what is added to each hop."""
    shift: tuple[float, ...]
    """By leg, by how much less important it is than its time says."""
    ahead: tuple[float, ...]
    """By chunk."""
    extra: float = 0.0
    weight: float = AS_FILLER
    """From the end of B to W."""
    period: float = 1.0
    burst: int = 0
    """Under tight caps, how many micro-batches enter together before a pause; 0: all at even distance."""
    turn: float = 1.0
    """From burst to burst, in units of the way of a micro-batch through the pipeline and back."""
    patience: float = math.inf
    filler: float = 0.0
    entry: Entry = ()
    """Empty where micro-batches enter in their own order."""
    fused: frozenset[int] = frozenset()
    pairs: bool = False


def construct(problem: Problem, *, seed: int = 0, deadline: float | None = None) -> Iterator[Schedule]:
    """Feasible schedules, each better than the one before, of a problem that passes `check_feasible`.

    Ends by itself after a number of trials that depends on the size, or when `deadline` (monotonic) has passed; the
    first schedule is given in any case.
    """
    model = Model(problem)
    best = math.inf
    for orders, value in _trials(model, random.Random(seed)):
        if value < best:
            best = value
            yield model.schedule(orders, "list scheduling")
        if deadline is not None and time.monotonic() >= deadline:
            return
    if best == math.inf:
        yield naive(problem)


def _trials(model: Model, chance: random.Random) -> Iterator[tuple[Orders, float]]:
    """Orders by list scheduling, and their values: first by the likely plans, then by mutations of the best.

    The best are kept for their different values: equal ones are mostly the same schedule.
    """
    ranked: dict[float, Plan] = {}
    likely = list(likely_plans(model))
    trials = len(likely) + min(1000 if model.identical else UNLIKE_TRIALS, 800_000 // model.total)
    for number in range(trials):
        if number < len(likely):
            plan = likely[number]
        elif not ranked:
            return
        else:
            plan = mutate(model, chance.choice(list(ranked.values())), chance)
        orders = dispatch(model, rule(model, plan), limit=max(ranked) if len(ranked) == SURVIVORS else math.inf)
        if orders is None:
            continue
        value = model.evaluate(orders)
        yield orders, value
        ranked[value] = plan
        if len(ranked) > SURVIVORS:
            del ranked[max(ranked)]


LIKELY = (
    (1.0, 0.0, math.inf, 0.0),
    (2.0, 0.0, math.inf, math.inf),
    (1.5, 0.0, math.inf, 1.0),
    (0.75, 0.0, math.inf, 0.0),
    (2.0, -1.0, math.inf, math.inf),
    (0.5, -1.0, math.inf, 0.0),
    (1.0, 1.0, math.inf, 0.0),
    (0.5, 0.0, math.inf, 0.0),
    (0.6, 1.0, math.inf, 0.0),
    (1.75, 1.0, 1.0, 1.0),
    (0.6, 0.0, math.inf, 0.0),
    (2.0, -1.0, 1.0, 0.0),
    (1.15, 1.0, math.inf, 0.0),
    (1.5, -1.0, math.inf, 1.0),
    (1.0, 1.0, 1.0, 1.0),
    (2.0, 1.0, math.inf, math.inf),
)
"""(ahead, extra, patience, filler) of plans that together came closest to the optima of many problems."""


def likely_plans(model: Model) -> Iterator[Plan]:
    """Plans that are often good; first those with as many forwards ahead as the caps have room for."""
    chunks = max(1, model.stages // model.devices)
    none = (0.0,) * (2 * chunks)
    room = min(2.0, roominess(model))
    forms = backward_forms(model)
    pairing = (True, False) if model.problem.pairs_pay else (False,)
    for ahead, extra, patience, filler in sorted(LIKELY, key=lambda numbers: abs(numbers[0] - room)):
        for fused in forms[:2]:
            for pairs in pairing:
                plan = Plan(none, none, (ahead,) * chunks, extra, patience=patience, filler=filler)
                yield replace(plan, fused=fused, pairs=pairs)
    for burst, (patience, filler), turn in product(bursts(model), ((0.5, 0.0), (1.0, 0.0), (0.0, 0.5)), (1.0, 1.05)):
        plan = Plan(none, none, (2.0,), patience=patience, filler=filler, burst=burst, turn=turn)
        yield replace(plan, fused=forms[0])


def bursts(model: Model) -> tuple[int, ...]:
    """Likely numbers of micro-batches that enter together: about as many as fit under caps tighter than 1F1B's memory.

    Little memory makes devices wait for micro-batches to return. In bursts, these waits fall together, and between them
    micro-batches follow each other at a distance at which their forwards and backwards do not collide. Where a device
    has several lanes, one fills the waits of the other: none are likely there.
    """
    if max(map(len, model.lanes_of)) > 1 or roominess(model) >= 1:
        return ()
    problem, forwards = model.problem, model.problem.least["F"]
    fitting = min(
        int((problem.caps[device] - problem.static_memory[device]) / forwards[stage].change + 1e-9)
        for stage, device in enumerate(model.owner)
        if forwards[stage].change > 0
    )
    return tuple(burst for burst in (fitting, fitting - 1) if burst > 0)


def backward_forms(model: Model) -> list[frozenset[int]]:
    """Which stages may fuse their backwards: those where it saves time, then none or all, as far as allowed."""
    everything = frozenset(range(model.stages))
    if model.problem.backward != "any":
        return [everything if model.problem.backward == "fused" else frozenset()]
    stages = model.problem.profile.stages
    saving = frozenset(s for s in everything if stages[s].fused < stages[s].backward_input + stages[s].backward_weight)
    forms = [saving, everything, frozenset()] if saving else [saving, everything]
    return forms if saving or model.problem.pairs_pay else [saving]


def roominess(model: Model) -> float:
    """The caps in units of what 1F1B would hold: on each stage, one micro-batch for every stage from there on."""
    problem, placement = model.problem, model.problem.placement
    forwards = problem.least["F"]
    ratios = []
    for device, stages in enumerate(placement.copies):
        need = sum(forwards[stage].change * (model.stages - stage) * model.devices / model.stages for stage in stages)
        room = problem.caps[device] - problem.static_memory[device]
        ratios.append(room / need if need > 0 else math.inf)
    return min(ratios)


def mutate(model: Model, plan: Plan, chance: random.Random) -> Plan:
    """A plan with one to three choices changed."""
    together = bursts(model)
    if chance.random() < 0.1:
        plan = replace(plan, fused=chance.choice(backward_forms(model)))
    if chance.random() < 0.1 and model.problem.pairs_pay:
        plan = replace(plan, pairs=not plan.pairs)
    if chance.random() < REENTRY and not model.identical:
        plan = replace(plan, entry=_reentered(model, plan.entry or _entry(model), chance))
    for _ in range(chance.choice((1, 1, 2, 3))):
        pick = chance.randrange(12 if together else 10)
        if pick <= 1:
            leg = chance.randrange(len(plan.slack))
            plan = replace(plan, slack=_changed(plan.slack, leg, max(0.0, _near(plan.slack[leg], 0.1, chance))))
        elif pick == 2:
            leg = chance.randrange(len(plan.shift))
            plan = replace(plan, shift=_changed(plan.shift, leg, _near(plan.shift[leg], 0.3, chance)))
        elif pick == 3:
            chunk = chance.randrange(len(plan.ahead))
            plan = replace(plan, ahead=_changed(plan.ahead, chunk, max(0.3, plan.ahead[chunk] + chance.gauss(0, 0.2))))
        elif pick == 4:
            step = chance.gauss(0, 0.2)
            plan = replace(plan, ahead=tuple(max(0.3, ahead + step) for ahead in plan.ahead))
        elif pick == 5:
            plan = replace(plan, extra=plan.extra + chance.choice((-0.5, 0.5)))
        elif pick == 6:
            near = min(plan.weight, 3.0) * (1 + chance.gauss(0, 0.2))
            plan = replace(plan, weight=chance.choice((AS_FILLER, 3 * chance.random(), near)))
        elif pick == 7:
            plan = replace(plan, period=chance.choice((1.0, max(0.5, plan.period + chance.gauss(0, 0.1)))))
        elif pick == 8:
            plan = replace(plan, patience=chance.choice((math.inf, 3.0, 1.0, 0.0, 2 * chance.random())))
        elif pick == 9:
            plan = replace(plan, filler=chance.choice((math.inf, 1.0, 0.0, 2 * chance.random())))
        elif pick == 10:
            plan = replace(plan, burst=max(0, (plan.burst or together[0]) + chance.choice((-1, 0, 1))))
        else:
            plan = replace(plan, turn=max(0.5, plan.turn + chance.gauss(0, 0.03)))
    return plan


def _near(number: float, width: float, chance: random.Random) -> float:
    """Something near a number, or none at all."""
    return chance.choice((0.0, number + chance.gauss(0, width)))


def _changed(numbers: tuple[float, ...], index: int, number: float) -> tuple[float, ...]:
    return (*numbers[:index], number, *numbers[index + 1 :])


def period(model: Model, fused: frozenset[int]) -> float:
    """The work of the busiest device on one micro-batch of factor 1 (of each direction)."""
    least = model.problem.least

    def work(stage: int) -> float:
        return sum(least[kind][stage].duration for kind in (("F", "BW") if stage in fused else ("F", "B", "W")))

    return max(sum(work(lane % model.stages) for lane in lanes) for lanes in model.lanes_of)


def _entry(model: Model) -> Entry:
    """The micro-batches of each direction in their own order."""
    return tuple(tuple(range(count)) for count in model.counts)


def _reentered(model: Model, entry: Entry, chance: random.Random) -> Entry:
    """One micro-batch of each direction at another place; or all by their factors: falling, rising, or both in turn."""
    way = chance.choice(("one",) * 5 + ("falling", "rising", "both"))
    orders = []
    for direction, ranks in enumerate(entry):
        factors = [model.problem.factor(direction * model.depth + rank) for rank in range(len(ranks))]
        line = list(ranks)
        if way == "one":
            line.insert(chance.randrange(len(line)), line.pop(chance.randrange(len(line))))
        else:
            line.sort(key=factors.__getitem__, reverse=way == "falling")
        if way == "both":
            line = line[::2] + line[1::2][::-1]
        orders.append(tuple(line))
    return tuple(orders)


def rule(model: Model, plan: Plan) -> Rule:
    """The dispatching rule of a plan."""
    depth, size, stages, lanes = model.depth, model.size, model.stages, model.lanes
    least = model.problem.least
    unit = period(model, plan.fused)
    chunks = len(plan.ahead)
    starts = [[0.0] * lanes for _ in range(3)]
    ahead = [0] * lanes
    ways = []
    for base in range(0, lanes, stages):
        now = 0.0
        begun = []
        trips = [0.0] * stages
        for stage in range(stages):
            lane, leg = base + stage, stage * chunks // stages
            if stage > 0:
                now += model.lag[lane * depth] + unit * plan.slack[leg]
            begun.append(now)
            starts[0][lane] = now + unit * plan.shift[leg]
            now += least["F"][stage].duration
        for stage in reversed(range(stages)):
            lane, leg = base + stage, chunks + stage * chunks // stages
            if stage < stages - 1:
                now += model.lag[size + lane * depth] + unit * plan.slack[leg]
            starts[1][lane] = now + unit * plan.shift[leg]
            now += least["BW" if stage in plan.fused else "B"][stage].duration
            starts[2][lane] = now + unit * plan.weight
            trips[stage] = now - begun[stage] + 2 * model.lag[size + base * depth]
        ways.append(trips[0])
        scale = stages / chunks / trips[0] if trips[0] > 0 else 0.0
        for stage in range(stages):
            many = plan.ahead[stage * chunks // stages] * scale * trips[stage] + plan.extra
            ahead[base + stage] = max(1, math.ceil(many - 1e-9))
    order = plan.entry or _entry(model)
    delays = []
    for direction, ranks in enumerate(order):
        delay, turn, delayed = 0.0, 0.0, [0.0] * depth
        for place, rank in enumerate(ranks):
            if plan.burst and place % plan.burst == 0:
                delay = max(delay, turn)
                turn = delay + plan.turn * ways[direction]
            delayed[rank] = delay
            delay += unit * plan.period * model.problem.factor(direction * depth + rank)
        delays.append(delayed)
    priority = [start + delay for kind in starts for lane, start in enumerate(kind) for delay in delays[lane // stages]]
    return Rule(
        [*priority, *priority[size : 2 * size]],
        patience=plan.patience,
        filler=plan.filler,
        ahead=ahead,
        entry=order,
        fused=plan.fused,
        pairs=plan.pairs,
    )
