"""The optimum of the few-device relaxation, by walking over counts with undominated labels.

A state is how many of each operation the kept devices have begun; a label, the times at which such a state can be
reached: when each device is free, when each pending micro-batch arrives, and the value already unavoidable. Of two
labels of a state the one that is nowhere later is enough. Operations are appended in the order of their starts, so
clocks and arrivals can be raised to the latest start, which makes more labels equal.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from operator import le

from debubble.compiler.relaxation import Move, Relaxation

Label = tuple[int, ...]
State = tuple[int, ...]
NEVER = -(10**30)


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


class _Node:
    """A state, the labels that reached it, and where the pending arrivals of each slot stand in them."""

    __slots__ = ("labels", "offsets", "rests", "state")

    def __init__(self, walk: Walk, state: State) -> None:
        self.state = state
        self.labels: set[Label] = set()
        self.rests = walk.rests(state)
        self.offsets = walk.offsets(state)


class Walk:
    """One relaxation, made ready to be walked.

    A label holds, in this order: the value already unavoidable; the time each kept device is free; for every convoy of
    every slot, when it let the last micro-batch arrive; for every slot with convoys, the pending arrivals.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self.relaxation = relaxation
        slots = relaxation.slots
        self.devices = len(relaxation.devices)
        self.lagged = [index for index, slot in enumerate(slots) if slot.convoys]
        self.first_convoy: dict[int, int] = {}
        self.fixed = 1 + self.devices
        for index in self.lagged:
            self.first_convoy[index] = self.fixed
            self.fixed += len(slots[index].convoys)
        self.least = [min(move.duration for move in relaxation.moves if i in move.slots) for i in range(len(slots))]

    def offsets(self, state: State) -> list[int]:
        """For every slot with convoys (else 0), the place of its first pending arrival in a label; then the end."""
        place = self.fixed
        offsets = [0] * len(self.relaxation.slots)
        for index in self.lagged:
            offsets[index] = place
            place += state[self.relaxation.slots[index].previous] - state[index]
        return [*offsets, place]

    def rests(self, state: State) -> list[int]:
        """For each kept device, the least time from its clock to the end of the schedule.

        All its work that is left; or what has to pass the slots up to one on a route, and the tail of the last there.
        The clock of a device with nothing left only says when others began: then a time far in the past.
        """
        slots, microbatches, n = self.relaxation.slots, self.relaxation.microbatches, len(self.relaxation.slots)
        loads, rests, before = [0] * self.devices, [NEVER] * self.devices, [0] * self.devices
        for index, slot in enumerate(slots):
            left, device = microbatches[index] - state[index], slot.device
            if slot.previous < 0:
                before = [0] * self.devices
            loads[device] += left * slot.whole
            if slot.kind == "B":
                loads[device] += (state[index] - state[n + index]) * slot.weight
            if left:
                before[device] += left * slot.share
                rests[device] = max(rests[device], before[device] + slot.tails[-1])
        return [
            max(load, rest) if load and measured else rest
            for load, rest, measured in zip(loads, rests, self.relaxation.measured, strict=True)
        ]

    def optimum(self, limit: int, budget: Budget) -> int | None:
        """The least value of the relaxation, or None when it is above `limit`. Raises OutOfBudgetError."""
        relaxation = self.relaxation
        first = _Node(self, (0,) * (2 * len(relaxation.slots)))
        value = max(0, *first.rests)
        if value > limit:
            return None
        first.labels.add((value, *[0] * (self.fixed - 1)))
        levels: defaultdict[int, dict[State, _Node]] = defaultdict(dict)
        levels[0][first.state] = first
        final = relaxation.final
        for level in range(sum(final)):
            for node in levels.pop(level, {}).values():
                self._expand(node, levels, level, limit, budget)
        goal = levels[sum(final)].get(final)
        return min((label[0] for label in goal.labels), default=None) if goal else None

    def _expand(
        self, node: _Node, levels: defaultdict[int, dict[State, _Node]], level: int, limit: int, budget: Budget
    ) -> None:
        """Append every possible move to every undominated label of a state."""
        labels = undominated(node.labels)
        state, n = node.state, len(self.relaxation.slots)
        moves = self.relaxation.moves_from(state)
        budget.spend(len(labels) * len(moves))
        # Nothing is lost by doing a W in a gap that it fits: it needs nothing, and only frees memory.
        filler = [
            min((m.duration for m in moves if m.device == device and m.weight_of >= 0), default=limit + 1)
            for device in range(self.devices)
        ]
        for move in moves:
            counts = list(state)
            for counter in move.counters:
                counts[counter] += 1
            target = tuple(counts)
            bucket = levels[level + len(move.counters)]
            reached = bucket.get(target)
            if reached is None:
                reached = _Node(self, target)
                bucket[target] = reached
            fits = limit + 1 if move.weight_of >= 0 else filler[move.device]
            for label in labels:
                following = self._append(node, label, move, reached, fits, limit)
                if following is not None:
                    reached.labels.add(following)
            if not reached.labels:
                del bucket[target]

    def _append(self, node: _Node, label: Label, move: Move, reached: _Node, fits: int, limit: int) -> Label | None:
        """The label after a move, or None when it leads above the limit or leaves a gap that a W fits."""
        slots, device = self.relaxation.slots, move.device
        clock = label[1 + device]
        start = clock
        for index in move.slots:
            slot = slots[index]
            if slot.convoys:
                start = max(start, label[node.offsets[index]])
            elif slot.heads:
                start = max(start, slot.heads[node.state[index]])
        if start - clock >= fits:
            return None
        end = start + move.duration
        after = list(label)
        value = max(label[0], end) if self.relaxation.measured[device] else label[0]
        for index in move.slots:
            rank = node.state[index]
            value = max(value, end + slots[index].tails[rank])
        # Insert and remove pending arrivals from the back, so that places stay true.
        edits: list[tuple[int, int, int]] = []
        for index in move.slots:
            if slots[index].convoys:
                edits.append((node.offsets[index], 0, 0))
            successor = self.relaxation.successors[index]
            if successor >= 0 and slots[successor].convoys:
                place = self.first_convoy[successor]
                arrival = 0
                for offset, rate in slots[successor].convoys:
                    after[place] = max(after[place] + rate, end + offset)
                    arrival = max(arrival, after[place])
                    place += 1
                value = max(value, arrival + self.least[successor] + slots[successor].tails[node.state[index]])
                pending = node.state[index] - node.state[successor]
                edits.append((node.offsets[successor] + pending, 1, arrival))
        if value > limit:
            return None
        for place, insert, arrival in sorted(edits, reverse=True):
            if insert:
                after.insert(place, arrival)
            else:
                del after[place]
        for other in range(self.devices):
            after[1 + other] = end if other == device else max(after[1 + other], start)
            value = max(value, after[1 + other] + reached.rests[other])
        if value > limit:
            return None
        after[0] = value
        self._raise(after, reached)
        return tuple(after)

    def _raise(self, label: list[int], node: _Node) -> None:
        """Raise times that cannot matter before the clocks: pending arrivals, and what convoys allow."""
        relaxation = self.relaxation
        for index in self.lagged:
            slot = relaxation.slots[index]
            previous = slot.previous
            pending = node.state[previous] - node.state[index]
            floor, least = label[1 + slot.device], self.least[index]
            place = node.offsets[index]
            for place in range(place, place + pending):
                if label[place] >= floor:
                    floor = label[place]
                label[place] = floor
                floor += least
            place = self.first_convoy[index]
            if node.state[previous] == relaxation.microbatches[previous]:
                for place in range(place, place + len(slot.convoys)):
                    label[place] = 0
            else:
                soonest = label[1 + relaxation.slots[previous].device] + self.least[previous]
                for place, (offset, rate) in enumerate(slot.convoys, place):
                    label[place] = max(label[place], soonest + offset - rate)


def undominated(labels: set[Label]) -> list[Label]:
    """The labels than which no other is nowhere later."""
    kept: list[Label] = []
    for label in sorted(labels):
        if not any(all(map(le, other, label)) for other in kept):
            kept.append(label)
    return kept
