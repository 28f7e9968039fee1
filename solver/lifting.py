"""Lifting: schedules that follow a kernel through all micro-batches, with head and tail by list scheduling.

The kernel's starts are priorities, so where the pipeline fills and drains, what is ready goes in the kernel's order.
Of many identical micro-batches only a few are scheduled, and what repeats is repeated (`stretching`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from .backend import Backend
from .constructions import backward_forms, construct
from .dispatch import Rule, dispatch
from .evaluation import B, F, Model, Orders, W
from .improvement import improve
from .periodic import Kernel, find_kernel
from .stretching import shortened, stretch

COPIES = (1, 2, 3, 4)
"""Micro-batches in one period of the kernels that are tried."""
SHARE = 0.4
"""The share of the time that is left which the search for one kernel may take."""
WORTHWHILE = 0.999
"""A kernel counts if its micro-batches take less than this times those of the best one before."""
TRIALS, EVALUATIONS = 400, 800_000
"""The most trials of one kernel, and operations scheduled in them."""


@dataclass(frozen=True)
class Way:
    """How a kernel is followed: the copy that enters first, and the choices of `Rule`.

    `hurry` is by how much of the kernel's period the forwards, the backwards and the weight gradients go earlier.
    """

    kernel: Kernel
    first: int = 0
    patience: float = math.inf
    filler: float = 0.0
    hurry: tuple[float, ...] = (0.0, 0.0, 0.0)


def lift(problem: Problem, *, backend: Backend, seed: int, deadline: float) -> Iterator[Schedule]:
    """Schedules that follow kernels, each better than the one before, until `deadline` (of time.monotonic).

    Where that ends it early it is not deterministic. Raises BackendMissingError when the back end is not installed.
    """
    model = Model(problem)
    short = Model(shortened(problem))
    kernels = _by_kernels(short, backend, random.Random(seed), deadline)
    best = least = math.inf
    schedule: Schedule | None = None

    def stretched(orders: Orders) -> Iterator[Schedule]:
        """The whole schedule from a short one, where it is better than those before."""
        nonlocal best
        whole = orders if short.depth == model.depth else stretch(short, orders, model)
        if whole and (value := model.evaluate(whole)) < best:
            best = value
            yield model.schedule(whole, "kernel")

    for orders, value in chain(_constructed(short, model, seed, deadline), kernels):
        if value < least:
            least, schedule = value, short.schedule(orders, "kernel")
            yield from stretched(orders)
    if schedule is not None and short.depth < model.depth:
        found: list[Schedule] = []
        improve(short.problem, schedule, seed=seed, deadline=deadline, target=0.0, report=found.append)
        for better in reversed(found):
            yield from stretched(short.orders(better))
            if time.monotonic() >= deadline:
                return


def _constructed(short: Model, model: Model, seed: int, deadline: float) -> Iterator[tuple[Orders, float]]:
    """The constructions of a problem that was shortened: it has time for more of them than the whole."""
    if short.depth < model.depth:
        until = time.monotonic() + SHARE * (deadline - time.monotonic())
        for schedule in construct(short.problem, seed=seed, deadline=until):
            orders = short.orders(schedule)
            yield orders, short.evaluate(orders)


def _by_kernels(
    model: Model, backend: Backend, chance: random.Random, deadline: float
) -> Iterator[tuple[Orders, float]]:
    """Orders that follow kernels of more and more copies, each with a shorter period than the one before."""
    rate = math.inf
    fused = backward_forms(model)[0]
    for copies in COPIES:
        if copies > min(model.counts) or time.monotonic() >= deadline:
            return
        until = time.monotonic() + SHARE * (deadline - time.monotonic())
        kernel = find_kernel(model, copies, backend, deadline=until, fused=fused)
        if kernel is not None and kernel.period / copies < rate * WORTHWHILE:
            rate = kernel.period / copies
            yield from _trials(model, kernel, fused, chance, deadline)


def _trials(
    model: Model, kernel: Kernel, fused: frozenset[int], chance: random.Random, deadline: float
) -> Iterator[tuple[Orders, float]]:
    """Orders that follow a kernel, and their values: the plain ways first, then changes of the best so far."""
    plain = [
        Way(kernel, first, patience, filler)
        for patience in (math.inf, 1.0, 0.0)
        for filler in (0.0, 1.0, math.inf)
        for first in range(kernel.copies)
    ]
    best, least = plain[0], math.inf
    for number in range(max(len(plain), min(TRIALS, EVALUATIONS // model.total))):
        if time.monotonic() >= deadline:
            return
        way = plain[number] if number < len(plain) else _changed(best, chance)
        orders = dispatch(model, rule(model, way, fused), limit=least)
        if orders is None:
            continue
        value = model.evaluate(orders)
        yield orders, value
        if value <= least:
            best, least = way, value


def _changed(way: Way, chance: random.Random) -> Way:
    """One or two choices made anew."""
    for _ in range(chance.randint(1, 2)):
        pick = chance.randrange(4)
        if pick == 0:
            way = replace(way, first=chance.randrange(way.kernel.copies))
        elif pick == 1:
            way = replace(way, patience=chance.choice((math.inf, 2 * chance.random())))
        elif pick == 2:
            way = replace(way, filler=chance.choice((math.inf, 2 * chance.random())))
        else:
            kind = chance.randrange(3)
            hurry = chance.choice((0.0, way.hurry[kind] + chance.gauss(0, 0.2)))
            way = replace(way, hurry=(*way.hurry[:kind], hurry, *way.hurry[kind + 1 :]))
    return way


def rule(model: Model, way: Way, fused: frozenset[int]) -> Rule:
    """The dispatching rule that follows a kernel."""
    kernel, depth, size = way.kernel, model.depth, model.size
    priority = [0.0] * model.pairs
    for kind in (F, B, W):
        early = way.hurry[kind] * kernel.period
        for lane in range(model.lanes):
            begin = kind * size + lane * depth
            for rank in range(depth):
                priority[begin + rank] = kernel.start(kind, lane, rank + way.first) - early
    priority[3 * size :] = priority[size : 2 * size]
    return Rule(priority, patience=way.patience, filler=way.filler, fused=fused)
