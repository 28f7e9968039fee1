"""Lower bounds that a formula gives: one function per bound, for every schedule of a problem. Times in time units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import accumulate

from .operation import KINDS
from .problem import Problem
from .relaxation import relax, room
from .route import Clock, prepared, route


def critical_path(problem: Problem) -> float:
    """The longest way of one micro-batch: F of every stage, B of every stage backwards, W where that ends last.

    For span, the longest part of it between the first and the last operation on one device.
    """
    placement, m = problem.placement, problem.microbatches
    best = 0.0
    for up in (False, True):
        travelling = [j for j in range(m) if placement.goes_up(j, m) == up]
        if not travelling:
            continue
        slowest = max(travelling, key=problem.factor)
        clock = Clock(problem, slowest)
        path = route(problem, clock, placement.owners(slowest, m), 1)
        for own in path.places.values():
            begin = path.starts[own[0]] if problem.objective == "span" else 0
            best = max(best, clock.time(max(path.starts[i] + path.ends[i] for i in own) - begin))
    return best


def load(problem: Problem, device: int) -> float:
    """What one device has to do, after its head and before its tail.

    The largest of: the head and all its work; the head, its work on the slots up to one of a route, and the tail after
    that slot; and when the last micro-batch can be there, given how fast the left-out devices pass them on (the
    convoys of `relaxation`), and the tail.
    """
    relaxation = relax(problem, ((device,), ()))
    scales = iter(_factor_sums(problem))
    heads: list[Fraction] = []
    work, best = Fraction(0), Fraction(0)
    for slot, m, shortest in zip(relaxation.slots, relaxation.microbatches, relaxation.shortest, strict=True):
        if slot.previous < 0:
            # Work grows with the factors of the micro-batches; heads, tails and convoys are those of the least factor.
            extent = next(scales)
            first, last = (Fraction(slot.heads[end]) if slot.heads else Fraction(0) for end in (0, -1))
            reached = first
            heads.append(first)
        lag = max((offset for offset, _ in slot.convoys), default=0)
        spread = max((offset + (m - 1) * rate for offset, rate in slot.convoys), default=0)
        begin = max(last + lag, first + spread, first + lag + (m - 1) * shortest)
        reached += extent * slot.share
        first, last = first + lag + shortest, max(begin + shortest, reached)
        best = max(best, begin + slot.whole, last + slot.tails[-1])
        work += extent * slot.whole
    return prepared(problem)[0].time(max(best, min(heads) + work))


def memory(problem: Problem, device: int) -> float:
    """Little's law: the memory held, summed over time, is at most the cap times the time it is held.

    Each micro-batch holds what its F takes at least until its B can start, that and B's rise while B or BW runs, and
    what B leaves while W runs. All of this grows with its factor, and so do the times but for the transfers:
    value >= head + (sum over micro-batches and stages of memory x least time) / (cap - static memory).
    """
    space = room(problem, device)
    clock, paths = prepared(problem)
    scale = float(clock.factor)
    if space <= 0 or scale == 0:
        return 0.0
    held, heads, first = 0.0, [], 0
    for path in paths:
        own = path.places[device]
        heads.append(path.starts[own[0]] if problem.objective == "makespan" else 0)
        batches = range(first, first := first + path.microbatches)
        for i in own[: len(own) // 2]:
            back, stage = len(path.devices) - 1 - i, path.stages[i]
            computing = sum(path.latencies[i:back])
            transferring = path.starts[back] - path.starts[i] - computing
            for flag, costs in enumerate(problem.costs):
                factors = [problem.factor(j) for j in batches if problem.chosen[stage][j] == flag]
                taken, split, fused = costs["F"][stage].change, costs["B"][stage], costs["BW"][stage]
                finish = min(
                    (taken + fused.rise) * path.wholes[back],
                    (taken + split.rise) * path.shares[back] + (taken + split.change) * path.weights[back],
                )
                held += math.fsum(factors) * max(0.0, taken * transferring)
                held += math.fsum(f * f for f in factors) / scale * max(0.0, taken * computing + finish)
    return clock.time(min(heads)) + held / space / clock.scale


def turnaround(problem: Problem, device: int) -> float:
    """What a device must idle until its first gradient returns, and again before the schedule can end.

    Before its first B, at time T at the earliest, it can only run the K forwards that its memory has room for beside
    the rise of a backward. When its last forward ends, with a tail still to come, memory has room for at most some
    gradients a still to come (one of them its own) and some weight gradients c still to do,
    a * M_F + c * (M_F + M_B) <= cap - static memory, so at most a * (B + W) + c * W is left to do.
    While not all forwards fit at once, the two do not overlap:
    value >= max(head, T - K * F) + all work + max(0, tail - (a * (B + W) + c * W)).

    Of several stages on the device, the least memory of any counts, and the most work that so many can have.
    """
    relaxation = relax(problem, ((device,), ()))
    slots, counts, changes, space = relaxation.slots, relaxation.microbatches, relaxation.changes, relaxation.rooms[0]
    lags = [max((offset for offset, _ in slot.convoys), default=0) for slot in slots]
    firsts = [i for i, slot in enumerate(slots) if slot.previous < 0]
    heads, returns, tails, taken, left = [], [], [], [], []
    for first, end in zip(firsts, [*firsts[1:], len(slots)], strict=True):
        turn = (first + end) // 2
        heads.append(slots[first].heads[0] if slots[first].heads else 0)
        returns.append(heads[-1] + sum(slots[i].share + lags[i + 1] for i in range(first, turn)))
        back = sum(lags[turn:end]) + sum(slot.share for slot in slots[turn : end - 1]) + slots[end - 1].whole
        tails.append(max(back, slots[turn - 1].tails[-1]))
        taken += [changes[i] for i in range(first, turn)]
        left += [changes[i] + changes[first + end - 1 - i] for i in range(first, turn)]
    total = sum(m for slot, m in zip(slots, counts, strict=True) if slot.kind == "F")
    rise = min(move.rise for move in relaxation.moves if any(slots[i].kind == "B" for i in move.slots))
    fits = _fitting(space - rise, min(taken), total)
    if fits < 1:
        return 0.0
    forwards, backwards, weights = (
        _most([(work, m) for work, m, slot in zip(works, counts, slots, strict=True) if slot.kind == kind])
        for kind, works in (
            ("F", [slot.share for slot in slots]),
            ("B", [slot.whole for slot in slots]),
            ("B", [slot.weight for slot in slots]),
        )
    )
    value = max(min(heads), min(returns) - forwards[fits]) + forwards[-1] + backwards[-1]
    if fits < total:
        fill = max(
            backwards[coming] + weights[_fitting(space - coming * min(taken), min(left), total - coming)]
            for coming in range(1, fits + 1)
        )
        value += max(0, min(tails) - fill)
    return prepared(problem)[0].time(value)


def _most(works: Iterable[tuple[int, int]]) -> list[int]:
    """For every number of things, the most work that so many can have; `works` are (work of one, how many such)."""
    each = sorted((work for work, count in works for _ in range(count)), reverse=True)
    return list(accumulate(each, initial=0))


def _fitting(space: float, each: float, most: int) -> int:
    """How many of at most `most` things fit."""
    return most if each * most <= space else int(max(0.0, space) / each) if each else 0


def _factor_sums(problem: Problem) -> list[Fraction]:
    """For each direction, the sum of its micro-batches' factors, as multiples of the least factor."""
    m, placement = problem.microbatches, problem.placement
    factors = problem.profile.microbatches
    down = m - m // 2 if placement.bidirectional else m
    if factors is None or min(factors) == 0:
        return [Fraction(count) for count in (down, m - down) if count]
    sums = [sum(map(Fraction, factors[:down])), sum(map(Fraction, factors[down:]))]
    return [Fraction(total) / Fraction(min(factors)) for total in sums if total]


def work(problem: Problem, device: int) -> float:
    """All that one device computes, each micro-batch with its own factor, in the quickest way that is allowed:

    sum over its stages of factor x min(r (F + B) + W, r (F + BW)), r the least ratio of a pair on the device or 1.
    """
    r = min(1.0, *(problem.pair_ratios[stage] for stage in problem.placement.copies[device]))
    placement, m, total = problem.placement, problem.microbatches, 0.0
    for up, owners in ((False, placement.down), (True, placement.up or ())):
        travelling = [j for j in range(m) if placement.goes_up(j, m) == up]
        for stage, owner in enumerate(owners):
            if owner == device:
                line = problem.chosen[stage]
                for flag, costs in enumerate(problem.costs):
                    f, b, w, bw = (costs[kind][stage].duration for kind in KINDS)
                    ways = {"split": (r * (f + b) + w,), "fused": (r * (f + bw),)}
                    extent = math.fsum(problem.factor(j) for j in travelling if line[j] == flag)
                    total += extent * min(ways.get(problem.backward) or (*ways["split"], *ways["fused"]))
    return total * (1 - 1e-12)


OF_A_DEVICE: dict[str, Callable[[Problem, int], float]] = {
    "load": load,
    "work": work,
    "memory": memory,
    "turnaround": turnaround,
}
"""The bounds that look at one device, by name."""
