"""The optimum of the few-device relaxation, by walking over counts with undominated labels.

A state is how many of each operation the kept devices have begun; a label, the times at which such a state can be
reached: when each device is free, when each pending micro-batch arrives, and the value already unavoidable. Of two
labels of a state the one that is nowhere later is enough. Operations are appended in the order of their starts, so
clocks and arrivals can be raised to the latest start, which makes more labels equal.

What is left from a state is bounded from below by `Futures`: the same walk, backwards, on one or two kept devices.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from operator import le

from ..compiler.relaxation import NEVER, Counts, Move, Relaxation, mirror

Label = tuple[int, ...]
"""In this order: the value already unavoidable; the time each kept device is free; for every convoy of every slot, when
it let the last micro-batch arrive; for every slot with convoys, the pending arrivals."""
Futures = dict[Counts, tuple[int, ...]]
"""For the counters of some devices, the least time from when each is free to the end; others cannot be completed."""


class OutOfBudgetError(Exception):
    """The search was given up: too many labels, or the deadline came."""


@dataclass
class Budget:
    """How many labels one search may make, and until when (time.monotonic) it may go on."""

    labels: int
    deadline: float | None = None

    def spend(self, labels: int) -> None:
        """Raises OutOfBudgetError when there is nothing left."""
        self.labels -= labels
        if self.labels < 0 or (self.deadline is not None and time.monotonic() > self.deadline):
            raise OutOfBudgetError


class Walk:
    """One walk over a relaxation: labels whose value would be above `limit` are dropped.

    What leaves a gap that a filler fits is skipped: no optimum is lost, though states are. A `partial` walk is that of
    a part of a larger relaxation: it skips none, and what is done at some time is either all that starts first or, seen
    in reversed time, all but what ends last. Of both kinds, what is still to come starts no earlier than the longest
    duration before the last end.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        limit: int,
        futures: dict[tuple[int, ...], Futures] | None = None,
        *,
        partial: bool = False,
    ) -> None:
        self.relaxation, self.limit, self.partial = relaxation, limit, partial
        self.longest = max(move.duration for move in relaxation.moves)
        self.impossible = (limit + 1,) * len(relaxation.devices)
        self.futures = [
            ([relaxation.devices.index(device) for device in devices], relaxation.part(devices), known)
            for devices, known in (futures or {}).items()
        ]
        self.devices = len(relaxation.devices)
        self.lagged = [index for index, slot in enumerate(relaxation.slots) if slot.convoys]
        self.first_convoy: dict[int, int] = {}
        self.fixed = 1 + self.devices
        for index in self.lagged:
            self.first_convoy[index] = self.fixed
            self.fixed += len(relaxation.slots[index].convoys)

    def optimum(self, budget: Budget) -> int | None:
        """The least value of the relaxation, or None when it is above the limit. Raises OutOfBudgetError."""
        final = self.relaxation.final
        return next((labels[0][0] for counts, labels in self.states(budget) if counts == final), None)

    def soonest(self, labels: list[Label]) -> tuple[int, ...]:
        """The earliest time at which each kept device is free."""
        return tuple(map(min, zip(*(label[1 : 1 + self.devices] for label in labels), strict=True)))

    def states(self, budget: Budget) -> Iterator[tuple[Counts, list[Label]]]:
        """Every state that can be reached, with its undominated labels, ascending. Raises OutOfBudgetError."""
        final = self.relaxation.final
        first = _Node(self, (0,) * len(final))
        if not first.possible:
            return
        first.labels.add((max(0, *first.rests), *[0] * (self.fixed - 1)))
        levels: defaultdict[int, dict[Counts, _Node]] = defaultdict(dict)
        levels[0][first.counts] = first
        for level in range(sum(final) + 1):
            for node in levels.pop(level, {}).values():
                labels = undominated(node.labels)
                if labels:
                    yield node.counts, labels
                    self._expand(node, labels, levels, level, budget)

    def _expand(
        self,
        node: _Node,
        labels: list[Label],
        levels: defaultdict[int, dict[Counts, _Node]],
        level: int,
        budget: Budget,
    ) -> None:
        """Append every possible move to every label of a state."""
        moves = self.relaxation.moves_from(node.counts)
        budget.spend(len(labels) * len(moves))
        for move in moves:
            following = list(node.counts)
            for counter in move.counters:
                following[counter] += 1
            counts = tuple(following)
            bucket = levels[level + len(move.counters)]
            reached = bucket.get(counts)
            if reached is None:
                reached = bucket[counts] = _Node(self, counts)
            if reached.possible:
                fillers = [] if self.partial else self.relaxation.fills(move, moves)
                _Step(self, node, reached, move, fillers).append(labels)


class _Node:
    """A state, the labels that reached it, and where things stand in them."""

    __slots__ = ("counts", "labels", "offsets", "possible", "raises", "resets", "rests")

    def __init__(self, walk: Walk, counts: Counts) -> None:
        relaxation = walk.relaxation
        self.counts = counts
        self.labels: set[Label] = set()
        self.rests = relaxation.rests(counts)
        for devices, part, known in walk.futures:
            left = known.get(tuple([counts[i] for i in part]), walk.impossible)
            for device, rest in zip(devices, left, strict=False):
                if NEVER < self.rests[device] < rest:
                    self.rests[device] = rest
        self.possible = max(self.rests) <= walk.limit
        self.offsets: dict[int, int] = {}
        """For each slot with convoys, the place of its first pending arrival."""
        self.raises: list[tuple[int, int, int, int]] = []
        """For each slot with pending arrivals: the place of the first, after the last, of the clock; the least time
        between two."""
        self.resets: list[tuple[int, int, int]] = []
        """For each convoy its place, the place of the clock before it, and what it is at least after that."""
        place = walk.fixed
        for index in walk.lagged:
            slot = relaxation.slots[index]
            previous = slot.previous
            end = place + counts[previous] - counts[index]
            self.offsets[index] = place
            if end > place:
                self.raises.append((place, end, 1 + slot.device, relaxation.shortest[index]))
            place = end
            over = counts[previous] == relaxation.microbatches[previous]
            clock, least = 1 + relaxation.slots[previous].device, relaxation.shortest[previous]
            for convoy, (offset, rate) in enumerate(slot.convoys, walk.first_convoy[index]):
                self.resets.append((convoy, 0, 0) if over else (convoy, clock, least + offset - rate))


class _Step:
    """One move from one state, with everything that is the same for all labels of the state."""

    def __init__(self, walk: Walk, node: _Node, reached: _Node, move: Move, fillers: list[Move]) -> None:
        slots, successors = walk.relaxation.slots, walk.relaxation.successors
        self.walk, self.reached, self.move = walk, reached, move
        ranks = [(slots[i], node.counts[i], i) for i in move.slots]
        self.clock = 1 + move.device
        # Where the arrival is after which another move fits in a gap (or 0), its head, and how long it takes.
        self.fillers = [self._filler(node, m) for m in fillers]
        self.arrivals = [node.offsets[i] for slot, _, i in ranks if slot.convoys]
        self.head = max((slot.heads[rank] for slot, rank, _ in ranks if slot.heads), default=0)
        self.tail = max((slot.tails[rank] for slot, rank, _ in ranks), default=NEVER)
        if walk.relaxation.measured[move.device]:
            self.tail = max(self.tail, 0)
        # What is handed on: the convoys' places, where the arrival is put, and the least time from it to the end.
        self.handed = [
            (
                list(enumerate(slots[j].convoys, walk.first_convoy[j])),
                node.offsets[j] + rank - node.counts[j],
                walk.relaxation.shortest[j] + slots[j].tails[rank],
            )
            for _, rank, i in ranks
            if (j := successors[i]) >= 0 and slots[j].convoys
        ]
        self.edits = len(self.arrivals) + len(self.handed)

    def _filler(self, node: _Node, move: Move) -> tuple[int, int, int]:
        """(place of the arrival or 0, head, duration) of a move that may fit in a gap."""
        if not move.slots:
            return 0, 0, move.duration
        slot = move.slots[0]
        heads = self.walk.relaxation.slots[slot].heads
        return node.offsets.get(slot, 0), heads[node.counts[slot]] if heads else 0, move.duration

    def append(self, labels: list[Label]) -> None:
        """Put the labels after the move to the state reached, but for those above the limit."""
        reached, clock, limit = self.reached, self.clock, self.walk.limit
        duration, devices = self.move.duration, range(1, 1 + self.walk.devices)
        for label in labels:
            start = max(label[clock], self.head)
            for place in self.arrivals:
                if label[place] > start:
                    start = label[place]
            if start > label[clock] and self._wasteful(label, start):
                continue
            end = start + duration
            value = max(label[0], end + self.tail)
            if value > limit:
                continue
            after = list(label)
            edits: list[tuple[int, int]] = [(place, NEVER) for place in self.arrivals]
            for convoys, place, rest in self.handed:
                arrival = 0
                for convoy, (offset, rate) in convoys:
                    after[convoy] = let = max(after[convoy] + rate, end + offset)
                    arrival = max(arrival, let)
                value = max(value, arrival + rest)
                edits.append((place, arrival))
            # From the back, so that places stay true.
            for place, arrival in edits if self.edits < 2 else sorted(edits, reverse=True):
                if arrival == NEVER:
                    del after[place]
                else:
                    after.insert(place, arrival)
            soonest = end - self.walk.longest if self.walk.partial else start
            for other in devices:
                if after[other] < soonest:
                    after[other] = soonest
            after[clock] = end
            for other, rest in zip(devices, reached.rests, strict=True):
                if after[other] + rest > value:
                    value = after[other] + rest
            if value > limit:
                continue
            after[0] = value
            for place, stop, own, least in reached.raises:
                floor = after[own]
                for pending in range(place, stop):
                    if after[pending] > floor:
                        floor = after[pending]
                    else:
                        after[pending] = floor
                    floor += least
            for convoy, before, least in reached.resets:
                if not before:
                    after[convoy] = 0
                elif after[before] + least > after[convoy]:
                    after[convoy] = after[before] + least
            reached.labels.add(tuple(after))

    def _wasteful(self, label: Label, start: int) -> bool:
        """True when a filler would be done before this start."""
        free = label[self.clock]
        return any(max(free, label[at] if at else 0, head) + duration <= start for at, head, duration in self.fillers)


def undominated(labels: set[Label]) -> list[Label]:
    """The labels than which no other is nowhere later, ascending."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not any(all(map(le, other, label)) for other in kept):
            kept.append(label)
    return kept


def futures(
    relaxation: Relaxation, limit: int, budget: Budget, simpler: dict[tuple[int, ...], Futures] | None = None
) -> Futures:
    """What is left at least from every state that a part of a relaxation can reach and complete within the limit.

    `simpler` are the futures of parts of this part. A walk forwards says how early each state is reached, which is what
    is left of the walk backwards.
    Raises OutOfBudgetError.
    """
    turned = mirror(relaxation)
    forwards = Walk(relaxation, limit, simpler, partial=True)
    passed = {turned.turned(counts): forwards.soonest(labels) for counts, labels in forwards.states(budget)}
    backwards = Walk(turned, limit, {relaxation.devices: passed}, partial=True)
    return {turned.seen(counts): backwards.soonest(labels) for counts, labels in backwards.states(budget)}
