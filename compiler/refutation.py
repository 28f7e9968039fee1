"""Refutation: no order of the kept devices reaches a value below a target.

This is what checks a relaxation's bound. It knows nothing of how the bound was found: it turns the target into the
latest end of every operation, then appends operations in the order of their starts, level by level, and forgets what
another partial order of the same operations makes needless. The claim holds when nothing is left.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .errors import CertificateError
from .relaxation import Move, Relaxation

Counts = tuple[int, ...]


class Gate(NamedTuple):
    """How micro-batches reach a slot from a left-out part of their route: for each convoy, when it let the last one
    arrive; and the arrivals of those that have not started there yet."""

    convoys: tuple[int, ...]
    arrivals: tuple[int, ...]


class Moment(NamedTuple):
    """A partial order: when each kept device is free, and the gate of every slot."""

    clocks: tuple[int, ...]
    gates: tuple[Gate, ...]

    def no_later(self, other: Moment) -> bool:
        """True when whatever can follow the other can follow this one, at the same times."""
        return all(a <= b for a, b in zip(self.clocks, other.clocks, strict=True)) and all(
            a <= b
            for gate, late in zip(self.gates, other.gates, strict=True)
            for a, b in zip(gate.convoys + gate.arrivals, late.convoys + late.arrivals, strict=True)
        )


def refuted(relaxation: Relaxation, target: int, steps: int) -> bool:
    """True when every complete order of the relaxation has a value of at least `target` ticks.

    Raises CertificateError when more than `steps` partial orders would have to be made to decide it.
    """
    search = _Search(relaxation, target - 1)
    none_yet = tuple(Gate((0,) * len(slot.convoys), ()) for slot in relaxation.slots)
    start = Moment((0,) * len(relaxation.devices), none_yet)
    levels: defaultdict[int, defaultdict[Counts, list[Moment]]] = defaultdict(lambda: defaultdict(list))
    levels[0][(0,) * len(relaxation.final)].append(start)
    for level in range(sum(relaxation.final)):
        for counts, moments in levels.pop(level, {}).items():
            moves = relaxation.moves_from(counts)
            least = _earliest(moments)
            steps -= len(least) * len(moves)
            if steps < 0:
                raise CertificateError("the certificate takes too many steps to check")
            for move in moves:
                after = list(counts)
                for counter in move.counters:
                    after[counter] += 1
                following = levels[level + len(move.counters)][tuple(after)]
                following.extend(filter(None, (search.follow(counts, moment, move, tuple(after)) for moment in least)))
    return not levels[sum(relaxation.final)][relaxation.final]


def _earliest(moments: list[Moment]) -> list[Moment]:
    """Moments such that each of the given ones is no earlier than one of them."""
    kept: list[Moment] = []
    for moment in sorted(set(moments)):
        if not any(other.no_later(moment) for other in kept):
            kept.append(moment)
    return kept


class _Search:
    """Partial orders that can still end by `limit`."""

    def __init__(self, relaxation: Relaxation, limit: int) -> None:
        self.relaxation, self.limit = relaxation, limit
        self.shortest = [
            min(move.duration for move in relaxation.moves if i in move.slots) for i in range(len(relaxation.slots))
        ]
        self.latest = self._latest()

    def _latest(self) -> list[list[int]]:
        """For every slot, the latest end of each micro-batch: for its tail, its next slot, and the micro-batch after."""
        slots = self.relaxation.slots
        latest = [[self.limit - tail for tail in slot.tails] for slot in slots]
        for i in reversed(range(len(slots))):
            after = self.relaxation.successors[i]
            for j in reversed(range(self.relaxation.microbatches[i])):
                if after >= 0:
                    lag = max((offset for offset, _ in slots[after].convoys), default=0)
                    latest[i][j] = min(latest[i][j], latest[after][j] - self.shortest[after] - lag)
                if j + 1 < self.relaxation.microbatches[i]:
                    latest[i][j] = min(latest[i][j], latest[i][j + 1] - self.shortest[i])
        return latest

    def follow(self, counts: Counts, moment: Moment, move: Move, after: Counts) -> Moment | None:
        """The moment after a move, or None when it cannot end by the limit."""
        slots = self.relaxation.slots
        start = moment.clocks[move.device]
        for i in move.slots:
            if slots[i].convoys:
                start = max(start, moment.gates[i].arrivals[0])
            if slots[i].heads:
                start = max(start, slots[i].heads[counts[i]])
        end = start + move.duration
        if any(end > self.latest[i][counts[i]] for i in move.slots):
            return None
        if self.relaxation.measured[move.device] and end > self.limit:
            return None
        # What comes later in this order starts later: no device does anything before `start` any more.
        clocks = tuple(end if d == move.device else max(start, free) for d, free in enumerate(moment.clocks))
        if not self._enough_time(clocks, after):
            return None
        gates = list(moment.gates)
        for i in move.slots:
            if slots[i].convoys:
                gates[i] = Gate(gates[i].convoys, gates[i].arrivals[1:])
            behind = self.relaxation.successors[i]
            if behind >= 0 and slots[behind].convoys:
                convoys = tuple(
                    max(last + rate, end + offset)
                    for last, (offset, rate) in zip(gates[behind].convoys, slots[behind].convoys, strict=True)
                )
                arrival = max(convoys)
                if arrival + self.shortest[behind] > self.latest[behind][counts[i]]:
                    return None
                gates[behind] = Gate(convoys, (*gates[behind].arrivals, arrival))
        return Moment(clocks, tuple(self._rounded(i, gate, clocks, after) for i, gate in enumerate(gates)))

    def _enough_time(self, clocks: tuple[int, ...], counts: Counts) -> bool:
        """Each device can still do all that is left to it, and reach each slot's last micro-batch in time."""
        slots = self.relaxation.slots
        work = [0] * len(clocks)
        reach = list(clocks)
        for i, slot in enumerate(slots):
            left = self.relaxation.microbatches[i] - counts[i]
            work[slot.device] += left * slot.whole
            if slot.kind == "B":
                work[slot.device] += (counts[i] - counts[len(slots) + i]) * slot.weight
            if slot.previous < 0:
                reach = list(clocks)
            reach[slot.device] += left * slot.share
            if left and reach[slot.device] > self.latest[i][-1]:
                return False
        # The clock of a device with nothing left only says when others began.
        return not any(
            measured and left and clock + left > self.limit
            for measured, left, clock in zip(self.relaxation.measured, work, clocks, strict=True)
        )

    def _rounded(self, i: int, gate: Gate, clocks: tuple[int, ...], counts: Counts) -> Gate:
        """The gate with times raised as far as nothing changes: a device that is busy does not see an early arrival."""
        slot = self.relaxation.slots[i]
        if not slot.convoys:
            return gate
        arrivals = []
        free = clocks[slot.device]
        for arrival in gate.arrivals:
            free = max(free, arrival)
            arrivals.append(free)
            free += self.shortest[i]
        before = slot.previous
        if counts[before] == self.relaxation.microbatches[before]:
            return Gate((0,) * len(slot.convoys), tuple(arrivals))
        soonest = clocks[self.relaxation.slots[before].device] + self.shortest[before]
        convoys = tuple(
            max(last, soonest + offset - rate) for last, (offset, rate) in zip(gate.convoys, slot.convoys, strict=True)
        )
        return Gate(convoys, tuple(arrivals))
