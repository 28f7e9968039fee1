"""Refutation: no order of the kept devices' operations has a value below a target.

This is what checks a relaxation's bound. It knows nothing of how the bound was found: it turns the target into the
latest end of every operation, then appends operations in the order of their starts, level by level, and forgets what
another partial order of the same operations makes needless. The claim holds when nothing is left at the end.

Where several devices are kept, one or two of them are first looked at without the others (`simpler`), forwards and
then in reversed time (`mirror`): this says how much time is left to each at least after every number of operations.
"""

from __future__ import annotations

import time
from collections import defaultdict
from operator import le

from .errors import CertificateError
from .problem import Problem
from .relaxation import NEVER, Counts, Kept, Move, Relaxation, mirror, relax, simpler

Moment = tuple[tuple[int, ...], ...]
"""A partial order: first when each kept device is free; then, for every slot with convoys, when each convoy let the
last micro-batch arrive, and the arrivals of those that have not started there yet."""
Left = dict[Counts, tuple[int, ...]]
"""For the counters of some devices, the least time from when each is free to the end; others cannot be completed."""


def refuted(problem: Problem, kept: Kept, target: int, steps: int, deadline: float | None = None) -> bool:
    """True when every order in the relaxation that keeps these devices has a value of at least `target` ticks.

    Raises CertificateError when more than `steps` partial orders would have to be made to decide it, or the `deadline`
    (time.monotonic) comes before.
    """
    allowance = _Allowance(steps, deadline)
    relaxation, limit = relax(problem, kept), target - 1
    left = _all_left(problem, kept, limit, allowance)
    return relaxation.final not in _Orders(relaxation, limit, left).earliest(allowance)


def _all_left(problem: Problem, kept: Kept, limit: int, allowance: _Allowance) -> dict[tuple[int, ...], Left]:
    """For some of the kept devices at a time, how much time is left to them."""
    return {(*fewer[0], *fewer[1]): _time_left(problem, fewer, limit, allowance) for fewer in simpler(problem, kept)}


def _time_left(problem: Problem, kept: Kept, limit: int, allowance: _Allowance) -> Left:
    """How much time is left to each of these devices, from every state that they can reach and complete."""
    fewer = relax(problem, kept)
    known = _all_left(problem, kept, limit, allowance)
    passed = _Orders(fewer, limit, known, partial=True).earliest(allowance)
    turned = mirror(fewer)
    before = {turned.turned(counts): times for counts, times in passed.items()}
    completed = _Orders(turned, limit, {fewer.devices: before}, partial=True)
    return {turned.seen(counts): times for counts, times in completed.earliest(allowance).items()}


class _Allowance:
    """How many partial orders may still be made, and until when."""

    def __init__(self, steps: int, deadline: float | None) -> None:
        self.steps, self.deadline = steps, deadline

    def take(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0 or (self.deadline is not None and time.monotonic() > self.deadline):
            raise CertificateError("the certificate takes too long to check")


class _Orders:
    """The partial orders of a relaxation that can still end by `limit`, but for those that waste a gap.

    With `partial` the relaxation is part of a larger one. A gap may then be needed; and what is done at some time is
    either all that starts first or, seen in reversed time, all but what ends last. Of both kinds, what is still to come
    starts no earlier than the longest duration before the last end.
    """

    def __init__(
        self, relaxation: Relaxation, limit: int, left: dict[tuple[int, ...], Left], *, partial: bool = False
    ) -> None:
        self.relaxation, self.limit, self.partial = relaxation, limit, partial
        self.left = [
            ([relaxation.devices.index(d) for d in devices], relaxation.part(devices), known)
            for devices, known in left.items()
        ]
        self.longest = max(move.duration for move in relaxation.moves)
        gated = [i for i, slot in enumerate(relaxation.slots) if slot.convoys]
        self.gates = {i: 1 + 2 * number for number, i in enumerate(gated)}
        """For every slot with convoys, where these stand in a moment; its arrivals follow."""
        self.latest = self._latest()

    def _latest(self) -> list[list[int]]:
        """The latest end of each slot and micro-batch: for its tail, its next slot, and the micro-batch after it."""
        relaxation, slots = self.relaxation, self.relaxation.slots
        latest = [[self.limit - tail for tail in slot.tails] for slot in slots]
        for i in reversed(range(len(slots))):
            after = relaxation.successors[i]
            for j in reversed(range(relaxation.microbatches[i])):
                if after >= 0:
                    lag = max((offset for offset, _ in slots[after].convoys), default=0)
                    latest[i][j] = min(latest[i][j], latest[after][j] - relaxation.shortest[after] - lag)
                if j + 1 < relaxation.microbatches[i]:
                    latest[i][j] = min(latest[i][j], latest[i][j + 1] - relaxation.shortest[i])
        return latest

    def earliest(self, allowance: _Allowance) -> Left:
        """The states that can be reached, with the earliest time at which each kept device is free in them."""
        relaxation = self.relaxation
        first = ((0,) * len(relaxation.devices), *(part for i in self.gates for part in ((0,) * self._convoys(i), ())))
        levels: defaultdict[int, defaultdict[Counts, set[Moment]]] = defaultdict(lambda: defaultdict(set))
        levels[0][(0,) * len(relaxation.final)].add(first)
        found: Left = {}
        for level in range(sum(relaxation.final) + 1):
            for counts, moments in levels.pop(level, {}).items():
                least = _needed(moments)
                if not least:
                    continue
                found[counts] = tuple(map(min, zip(*(moment[0] for moment in least), strict=True)))
                moves = relaxation.moves_from(counts)
                allowance.take(len(least) * len(moves))
                for move in moves:
                    after = list(counts)
                    for counter in move.counters:
                        after[counter] += 1
                    into = tuple(after)
                    ends = self._ends(into)
                    fillers = [] if self.partial else relaxation.fills(move, moves)
                    for moment in least:
                        begin = self._start(counts, moment, move)
                        if not any(self._start(counts, moment, m) + m.duration <= begin for m in fillers):
                            following = self._follow(counts, moment, move, begin, into, ends)
                            if following is not None:
                                levels[level + len(move.counters)][into].add(following)
        return found

    def _convoys(self, i: int) -> int:
        return len(self.relaxation.slots[i].convoys)

    def _ends(self, counts: Counts) -> list[int]:
        """By when each kept device has to be free with these counters, for what is left to it."""
        rests = self.relaxation.rests(counts)
        ends = [self.limit - rest for rest in rests]
        for devices, part, known in self.left:
            left = known.get(tuple([counts[i] for i in part]), (self.limit - NEVER,) * len(devices))
            for device, rest in zip(devices, left, strict=True):
                if rests[device] != NEVER:
                    ends[device] = min(ends[device], self.limit - rest)
        for i, slot in enumerate(self.relaxation.slots):
            coming = self.relaxation.microbatches[i] - counts[i]
            if coming:
                ends[slot.device] = min(ends[slot.device], self.latest[i][-1] - coming * slot.share)
        return ends

    def _start(self, counts: Counts, moment: Moment, move: Move) -> int:
        """When a move can start."""
        start = moment[0][move.device]
        for i in move.slots:
            if i in self.gates:
                start = max(start, moment[self.gates[i] + 1][0])
            if self.relaxation.slots[i].heads:
                start = max(start, self.relaxation.slots[i].heads[counts[i]])
        return start

    def _follow(
        self, counts: Counts, moment: Moment, move: Move, start: int, into: Counts, ends: list[int]
    ) -> Moment | None:
        """The moment after a move from a start on, or None when it cannot end by the limit."""
        relaxation, slots = self.relaxation, self.relaxation.slots
        end = start + move.duration
        if relaxation.measured[move.device] and end > self.limit:
            return None
        # What comes later in this order starts later: no device does anything before `soonest` any more.
        soonest = end - self.longest if self.partial else start
        clocks = tuple(end if d == move.device else max(soonest, free) for d, free in enumerate(moment[0]))
        if any(map(int.__gt__, clocks, ends)):
            return None
        parts = list(moment)
        parts[0] = clocks
        for i in move.slots:
            if end > self.latest[i][counts[i]]:
                return None
            if i in self.gates:
                parts[self.gates[i] + 1] = parts[self.gates[i] + 1][1:]
            behind = relaxation.successors[i]
            if behind in self.gates:
                place = self.gates[behind]
                let = [
                    max(last + rate, end + offset)
                    for last, (offset, rate) in zip(parts[place], slots[behind].convoys, strict=True)
                ]
                if max(let) + relaxation.shortest[behind] > self.latest[behind][counts[i]]:
                    return None
                parts[place] = tuple(let)
                parts[place + 1] = (*parts[place + 1], max(let))
        for i, place in self.gates.items():
            before = slots[i].previous
            if into[before] == relaxation.microbatches[before]:
                parts[place] = (0,) * len(parts[place])
            else:
                leaves = clocks[slots[before].device] + relaxation.shortest[before]
                parts[place] = tuple(
                    max(last, leaves + offset - rate)
                    for last, (offset, rate) in zip(parts[place], slots[i].convoys, strict=True)
                )
            parts[place + 1] = _no_earlier(parts[place + 1], clocks[slots[i].device], relaxation.shortest[i])
        return tuple(parts)


def _no_earlier(arrivals: tuple[int, ...], free: int, least: int) -> tuple[int, ...]:
    """Arrivals raised as far as nothing changes: a device that is busy does not see that one comes early."""
    raised = []
    for arrival in arrivals:
        free = max(free, arrival)
        raised.append(free)
        free += least
    return tuple(raised)


def _needed(moments: set[Moment]) -> list[Moment]:
    """Moments such that each of the given ones is nowhere earlier than one of them, ascending."""
    kept: list[Moment] = []
    for moment in sorted(moments):
        if not any(all(all(map(le, a, b)) for a, b in zip(other, moment, strict=True)) for other in kept):
            kept.append(moment)
    return kept
