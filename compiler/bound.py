"""Lower bounds that a formula gives: one function per bound, for every schedule of a problem. Times in time units."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

from .operation import KINDS
from .problem import Problem
from .relaxation import Relaxation, relax, room
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
    heads, tails, taken, left = [], [], [], []
    for first, end in zip(firsts, [*firsts[1:], len(slots)], strict=True):
        turn = (first + end) // 2
        heads.append(slots[first].heads[0] if slots[first].heads else 0)
        back = sum(lags[turn:end]) + sum(slot.share for slot in slots[turn : end - 1]) + slots[end - 1].whole
        tails.append(max(back, slots[turn - 1].tails[-1]))
        taken += [changes[i] for i in range(first, turn)]
        left += [changes[i] + changes[first + end - 1 - i] for i in range(first, turn)]
    total = sum(m for slot, m in zip(slots, counts, strict=True) if slot.kind == "F")
    fits = _fitting_forwards(relaxation)
    if fits < 1:
        return 0.0
    forwards, backwards = _most(relaxation, "F", "whole"), _most(relaxation, "B", "whole")
    value = max(min(heads), min(_returns(relaxation)) - forwards[fits]) + forwards[-1] + backwards[-1]
    if fits < total:
        weights = _most(relaxation, "B", "weight")
        fill = max(
            backwards[coming] + weights[_fitting(space - coming * min(taken), min(left), total - coming)]
            for coming in range(1, fits + 1)
        )
        value += max(0, min(tails) - fill)
    return prepared(problem)[0].time(value)


def crossing(problem: Problem, device: int) -> float:
    """What two devices of a bidirectional placement idle until their first gradients return, for span.

    On each device the first gradient returns R_down after the first forward going down, or R_up after the first going
    up, and until then it can only run the K forwards that its memory has room for (see `turnaround`). Where the first
    forward going down comes s after the first going up,
    value >= all work - K * F + min(R_down + max(0, s), R_up + max(0, -s)).
    A device further down sees an s that is larger by at least the ways down and up between the two, so not both can
    choose it. The largest of this device and each one further down.
    """
    clock, paths = prepared(problem)
    if problem.objective != "span" or len(paths) != 2:
        return 0.0
    down, up = ([path.starts[path.places[d][0]] for d in range(problem.devices)] for path in paths)

    def least(at: int) -> tuple[int, int]:
        relaxation = relax(problem, ((at,), ()))
        forwards, backwards = _most(relaxation, "F", "whole"), _most(relaxation, "B", "whole")
        busy = forwards[-1] + backwards[-1] - forwards[_fitting_forwards(relaxation)]
        returns_down, returns_up = _returns(relaxation)
        return busy + returns_down, busy + returns_up

    own_down, own_up = least(device)
    best = 0
    for other in range(problem.devices):
        apart = down[other] - down[device] + up[device] - up[other]
        its_down, its_up = least(other) if down[other] > down[device] else (1, 0)
        if own_up <= own_down and its_down <= its_up:
            both = max(own_up, its_down, -(-(own_up + its_down + apart) // 2))
            best = max(best, min(both, max(own_down, its_down), max(its_up, own_up)))
    return clock.time(best)


def _returns(relaxation: Relaxation) -> list[int]:
    """When the first gradient of each route can return to a kept device."""
    found: list[int] = []
    for slot in relaxation.slots:
        if slot.previous < 0:
            clock, returned = slot.heads[0] if slot.heads else 0, False
        clock += max((offset for offset, _ in slot.convoys), default=0)
        if slot.kind == "B" and not returned:
            found.append(clock)
            returned = True
        clock += slot.share
    return found


def _fitting_forwards(relaxation: Relaxation) -> int:
    """How many forwards at most a kept device can have memory for beside the rise of a backward."""
    slots = relaxation.slots
    taken = min(change for slot, change in zip(slots, relaxation.changes, strict=False) if slot.kind == "F")
    total = sum(m for slot, m in zip(slots, relaxation.microbatches, strict=True) if slot.kind == "F")
    rise = min(move.rise for move in relaxation.moves if any(slots[i].kind == "B" for i in move.slots))
    return _fitting(relaxation.rooms[0] - rise, taken, total)


def _most(relaxation: Relaxation, kind: str, work: str) -> list[int]:
    """For every number of F or B, the most work ("whole", or "weight": that of W alone) that so many can have."""
    works = [
        getattr(slot, work)
        for slot, m in zip(relaxation.slots, relaxation.microbatches, strict=True)
        if slot.kind == kind
        for _ in range(m)
    ]
    return list(accumulate(sorted(works, reverse=True), initial=0))


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
    "crossing": crossing,
}
"""The bounds that look at one device, by name."""
