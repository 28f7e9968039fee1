"""Improvement: simulated annealing on the orders, by moves on the longest paths.

The moves are those of job-shop search (Dell'Amico and Trubian 1993; Balas and Vazacopoulos 1998), with weight gradients
pulled forward where a move would break the cap. Almost all are refused by an estimate that costs no evaluation.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .evaluation import Model
from .forms import Forms
from .graph import Graph, Move

TRIALS = 60_000
"""Moves tried in one annealing."""
ANNEALINGS = ((0.5, 0.8), (1.0, 0.8), (2.0, 0.5), (6.0, 0.5)) * 3
"""For each annealing: where its heat starts, in units of the mean duration of a step, and the share of moves that carry
a node to the edge of its block. Those alone shorten the path, the others find ways around caps."""
REACH = 12
"""How far ahead weight gradients are looked for to make room."""
FORMING = 0.2
"""The share of moves that form other steps, where there are any."""


def improve(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int,
    deadline: float,
    target: float,
    report: Callable[[Schedule], None] | None = None,
) -> Schedule:
    """A schedule that is at least as good as the given one, which fits the caps.

    Stops at `deadline` (monotonic), at a value of `target`, or when all annealings are done; in the latter two cases it
    is deterministic for a seed. `report` is given every better schedule.
    """
    model = Model(problem)
    graph = Graph(model, model.orders(schedule))
    best, found = graph.value, schedule
    chance = random.Random(seed)
    forms = Forms(model)
    unit = math.fsum(graph.length) / sum(map(len, graph.orders))
    goal = target + 1e-9 * abs(target)
    for heat, to_edge in ANNEALINGS:
        blocks = graph.blocks()
        for number in range(TRIALS):
            if best <= goal or (number % 64 == 0 and time.monotonic() >= deadline):
                return found
            limit = graph.value - heat * unit * (1 - number / TRIALS) ** 2 * math.log(1 - chance.random())
            block = chance.choice(blocks)
            move = forms.move(graph, block, chance) if forms.any and chance.random() < FORMING else None
            if move is None:
                move = _shift(graph, block, to_edge, chance)
            if move is None or not _make(graph, move, limit):
                continue
            blocks = graph.blocks()
            if graph.value < best * (1 - 1e-12):
                best, found = graph.value, model.schedule(graph.numbers(), "local search")
                if report is not None:
                    report(found)
        graph = Graph(model, model.orders(found))
    return found


def _make(graph: Graph, move: Move, limit: float) -> bool:
    """Make a move, with what it takes to keep the cap, unless the objective then exceeds `limit`."""
    graph.form(move.steps)
    fitting = _fitting(graph, move)
    if fitting is not None and graph.estimate(*fitting) <= limit:
        device, low, high, window = fitting
        replaced = graph.orders[device][low:high]
        graph.put(device, low, high, window)
        if graph.value <= limit:
            return True
        graph.form(move.former)
        graph.put(device, low, low + len(window), replaced)
    else:
        graph.form(move.former)
    return False


def _shift(graph: Graph, block: tuple[int, int, int], to_edge: float, chance: random.Random) -> Move | None:
    """A random move of one node of a block, to its edge or by a few places; None where it cannot be made."""
    device, first, last = block
    if chance.random() < to_edge:
        away = 1 + int(chance.expovariate(0.3))
        i, j = (min(last, first + away), first) if chance.random() < 0.5 else (max(first, last - away), last)
    else:
        i = chance.randint(first, last)
        j = i + chance.choice((-1, 1)) * (1 + int(chance.expovariate(0.4)))
    order = graph.orders[device]
    if i == j or not 0 <= j < len(order):
        return None
    x = order[i]
    if i < j:
        crossed = order[i + 1 : j + 1]
        window = [*crossed, x] if all(graph.crossable(x, y) for y in crossed) else None
    else:
        crossed = order[j:i]
        window = [x, *crossed] if all(graph.crossable(y, x) for y in crossed) else None
    return None if window is None else Move(device, min(i, j), max(i, j) + 1, window)


def _fitting(graph: Graph, move: Move) -> tuple[int, int, int, list[int]] | None:
    """Pull weight gradients forward until the window keeps the cap; None where those nearby do not suffice."""
    device, low, high, window = move[:4]
    order, cap = graph.orders[device], graph.model.tolerances[device]
    held = graph.held[device][low]
    line = window + order[high : high + REACH]
    count, weights = len(window), 2 * graph.model.size
    pulled: set[int] = set()
    placed: list[int] = []
    for index, x in enumerate(line):
        if index >= count:
            break
        if x in pulled:
            continue
        while held + graph.rise[x] > cap:
            waiting = set(line[index:]) - pulled
            for place in range(index + 1, len(line)):
                weight = line[place]
                if weight >= weights and weight not in pulled and graph.needs[weight][0][0] not in waiting:
                    break
            else:
                return None
            pulled.add(weight)
            placed.append(weight)
            held += graph.net[weight]
            count = max(count, place + 1)
        placed.append(x)
        held += graph.net[x]
    return device, low, high + count - len(window), placed
