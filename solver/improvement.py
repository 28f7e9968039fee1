"""Improvement: local search on the orders, by moves on the critical path."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .evaluation import Model, Orders


def improve(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int,
    deadline: float,
    target: float,
    report: Callable[[Schedule], None] | None = None,
) -> Schedule:
    """A schedule that is at least as good, by simulated annealing until `deadline` (monotonic) or value `target`.

    Deterministic for a seed when it ends before the deadline. `report` is given every better schedule.
    """
    model = Model(problem)
    orders = model.orders(schedule)
    current = best = model.evaluate(orders)
    found = schedule
    if any(step >= model.pairs for order in orders for step in order):
        return schedule
    chance = random.Random(seed)
    rounds = 4000 + 10_000_000 // model.total
    unit = best / model.total * model.devices
    moved = True
    for number in range(rounds):
        if (number % 64 == 0 and time.monotonic() >= deadline) or best <= target * (1 + 1e-9):
            break
        if number % 256 == 0 or moved:
            critical = critical_positions(model, orders)
            moved = False
        heat = 0.5 * unit * (1 - number / rounds) ** 2
        d, i = chance.choice(critical)
        changed = shift(model, d, orders[d], i, chance)
        if changed is None:
            continue
        old, orders[d] = orders[d], changed
        value = model.evaluate(orders)
        if value <= current or chance.random() < math.exp((current - value) / heat):
            current, moved = value, True
            if value < best * (1 - 1e-12):
                best, found = value, model.schedule(orders, "local search")
                if report is not None:
                    report(found)
        else:
            orders[d] = old
    return found


def critical_positions(model: Model, orders: Orders) -> list[tuple[int, int]]:
    """(device, index) of every step on a longest path."""
    sequence: list[int] = []
    ends = model.ends(orders, sequence)
    assert ends is not None
    offsets = model.offsets(orders, ends)
    value = model.value(orders, ends)
    tails = [0.0] * len(ends)
    after = {}
    place = {}
    for d, order in enumerate(orders):
        for i, x in enumerate(order):
            after[x] = order[i + 1] if i + 1 < len(order) else -1 - d
            place[x] = d, i
    critical = []
    for x in reversed(sequence):
        y = after[x]
        tail = -offsets[-1 - y] if y < 0 else tails[y] + model.duration[y]
        t = model.target[x]
        if t >= 0:
            tail = max(tail, model.lag[t] + tails[t] + model.duration[t])
        tails[x] = tail
        if ends[x] + tail >= value * (1 - 1e-9):
            critical.append(place[x])
    return critical


def shift(model: Model, d: int, order: list[int], i: int, chance: random.Random) -> list[int] | None:
    """Move a step over others, as far as its own letter and the cap allow."""
    size = model.size
    x = order[i]
    j = i + chance.choice((-1, 1)) * min(len(order), int(1 + chance.expovariate(0.4)))
    if not 0 <= j < len(order):
        return None
    changed = order[:i] + order[i + 1 :]
    changed.insert(j, x)
    low, high = min(i, j), max(i, j)
    for y in order[low : high + 1]:
        if (y != x and (y - x) % size == 0) or (y // model.depth == x // model.depth and y != x):
            return None
    return repair(model, d, changed)


def repair(model: Model, d: int, order: list[int]) -> list[int] | None:
    """Pull weight gradients forward until the order fits the cap."""
    cap = model.tolerances[d]
    held = model.problem.static_memory[d]
    size, change = model.size, model.change
    waiting = []
    result = []
    moved = set()
    for x in order:
        if x in moved:
            continue
        while held + change[x] > cap and change[x] > 0 and waiting:
            w = waiting.pop(0)
            if w in moved:
                continue
            moved.add(w)
            result.append(w)
            held += change[w]
        held += change[x]
        if held > cap:
            return None
        result.append(x)
        if x // size == 1:
            waiting.append(x + size)
        elif x // size == 2:
            waiting.remove(x)
    return result
