"""Stretching: a schedule of few identical micro-batches becomes one of many by repeating what repeats in it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from ..compiler.problem import Problem
from .evaluation import BW, B, Model, Orders, W

SHORT = 3000
"""Operations of a problem that is scheduled as a whole; longer ones are stretched."""
DIVISIBLE = 12
"""What is left out of a problem is a multiple of so many micro-batches, and so of most periods."""
PARTS = 4
"""Parts of a short schedule that are repeated to see which gives the best whole."""


def shortened(problem: Problem) -> Problem:
    """A problem that differs in having fewer micro-batches, where they are identical and there are many."""
    most = max(SHORT // (3 * problem.stages), 6 * problem.devices)
    left_out = (problem.microbatches - most) // DIVISIBLE * DIVISIBLE
    alike = problem.identical_microbatches and problem.profile.microbatches is None
    if left_out <= 0 or not alike or problem.placement.bidirectional:
        return problem
    return replace(problem, microbatches=problem.microbatches - left_out)


def stretch(short: Model, orders: Orders, model: Model) -> Orders | None:
    """The orders for all micro-batches of `model`, from those for fewer; None where nothing in them repeats.

    Between two moments at which every device has done the same, but for k more micro-batches, what runs can be repeated
    and keeps all dependencies and caps. The parts with the least time for a micro-batch are tried.
    """
    missing = model.depth - short.depth
    ends = short.ends(orders)
    if ends is None:
        return None
    moments = [ends[rank] - short.duration[rank] for rank in range(short.depth)]
    cuts = [
        [bisect_left(starts, moment) for moment in moments]
        for starts in ([short.end(ends, step) - short.length(step) for step in order] for order in orders)
    ]
    alike: dict[tuple[int, ...], list[int]] = {}
    for rank, state in enumerate(_states(short, orders, cuts)):
        alike.setdefault(state, []).append(rank)
    parts = [
        ((moments[last] - moments[first]) / (last - first), first, last)
        for ranks in alike.values()
        for first, last in combinations(ranks, 2)
        if missing % (last - first) == 0
    ]
    best, least = None, math.inf
    for _, first, last in sorted(parts)[:PARTS]:
        whole = _repeated(short, orders, model, [(cut[first], cut[last]) for cut in cuts], last - first)
        value = model.evaluate(whole)
        if value < least:
            best, least = whole, value
    return best


def _states(model: Model, orders: Orders, cuts: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """How many operations of each lane and kind every device has done at its cuts, less the number of the cut."""
    done = [0] * (3 * model.lanes)
    begin = [0] * len(orders)
    for rank in range(model.depth):
        for device, order in enumerate(orders):
            end = cuts[device][rank]
            for step in order[begin[device] : end]:
                for part in model.parts(step):
                    kind, rest = divmod(part, model.size)
                    for counted in (B, W) if kind == BW else (kind,):
                        done[counted * model.lanes + rest // model.depth] += 1
            begin[device] = end
        yield tuple(count - rank for count in done)


def _repeated(short: Model, orders: Orders, model: Model, parts: list[tuple[int, int]], copies: int) -> Orders:
    """Repeat a part of each device's order, from one index to another, until all micro-batches of `model` are there."""

    def later(step: int, microbatches: int) -> int:
        numbers = []
        for part in short.parts(step):
            row, rank = divmod(part, short.depth)
            numbers.append(row * model.depth + rank + microbatches)
        return numbers[0] if len(numbers) == 1 else model.pair(*numbers)

    missing = model.depth - short.depth
    whole = []
    for order, (first, last) in zip(orders, parts, strict=True):
        row = [later(step, 0) for step in order[:last]]
        for more in range(copies, missing + 1, copies):
            row += [later(step, more) for step in order[first:last]]
        whole.append(row + [later(step, missing) for step in order[last:]])
    return whole
