"""Windows: when each task may start in a schedule whose value is at most a target.

Windows are tightened by propagation until nothing changes. When a window empties there is no such schedule, and the
target is refuted. Propagation never removes a schedule in number order that meets the target.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from .tasks import Life, Tasks, bits

ROUNDS = 400
"""Rounds of propagation after which windows stay as they are: the rest would tighten them by single ticks."""


class Refuted(Exception):
    """No schedule of the tasks has a value of at most the target."""


class Windows:
    """Earliest and latest start of every task, and the tasks decided to run before and after it on its device.

    `target` is the largest value allowed, in ticks. `blocks` may split the tasks of each device into parts that are to
    be taken one after another; the order must be one of a valid schedule. Raises Refuted, from the constructor and from
    every method that decides something, when nothing is left.
    """

    def __init__(self, tasks: Tasks, target: int, blocks: Iterable[Sequence[Sequence[int]]] = ()) -> None:
        self.tasks, self.target = tasks, target
        self.earliest = [0] * len(tasks.operations)
        horizon = 2 * target if tasks.problem.objective == "span" else target
        self.latest = [horizon - duration for duration in tasks.durations]
        before, after = tasks.closure
        self.before = list(before)
        """Bit k of `before[i]`: task k runs before task i on the same device."""
        self.after = list(after)
        self._seen: list[list[tuple[int, int, int]]] = [[] for _ in tasks.on_device]
        """What a device was like when its rules were last applied."""
        self.shaved: list[tuple[int, int]] = []
        """The orders (first, second) that probing decided, one after the other."""
        for parts in blocks:
            self._keep(parts)
        self.propagate()

    def copy(self) -> Windows:
        """Windows that can be tightened without changing these."""
        twin = object.__new__(Windows)
        twin.__dict__.update(self.__dict__)
        twin.earliest, twin.latest = self.earliest[:], self.latest[:]
        twin.before, twin.after = self.before[:], self.after[:]
        twin._seen = self._seen[:]
        return twin

    def decided(self, first: int, second: int) -> bool:
        """True when it is known which of two tasks of one device runs first."""
        return bool((self.before[first] | self.after[first]) >> second & 1)

    def open_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of tasks of one device whose order is still to be chosen."""
        for members in self.tasks.on_device:
            for position, first in enumerate(members):
                known = self.before[first] | self.after[first]
                for second in members[position + 1 :]:
                    if not known >> second & 1:
                        yield first, second

    def neighbours(self) -> Iterator[tuple[int, int]]:
        """Pairs (i, j) decided to run in this order, with no third task decided to run between them."""
        for second, mask in enumerate(self.before):
            for first in bits(mask):
                if not self.after[first] & mask:
                    yield first, second

    def open_cycles(self) -> Iterator[tuple[int, int, int]]:
        """Triples of tasks of one device that take no time, and could each run before the next in a circle.

        Start times rule out every other circle.
        """
        for members in self.tasks.on_device:
            instant = [task for task in members if self.tasks.durations[task] == 0]
            for first, second, third in itertools.combinations(instant, 3):
                for i, j, k in ((first, second, third), (third, second, first)):
                    if not (self.after[j] >> i | self.after[k] >> j | self.after[i] >> k) & 1:
                        yield i, j, k

    def order_by(self, chosen: Callable[[int, int], bool]) -> list[int]:
        """All tasks, on every device in order; `chosen(i, j)` tells for an open pair i < j whether i runs first."""
        count = {task: mask.bit_count() for task, mask in enumerate(self.before)}
        for first, second in self.open_pairs():
            count[second if chosen(first, second) else first] += 1
        return sorted(count, key=lambda task: (count[task], task))

    def order(self, first: int, second: int) -> None:
        """Decide that one task runs before another on their device, and what follows from it by transitivity."""
        if self.before[second] >> first & 1:
            return
        if self.before[first] >> second & 1:
            raise Refuted
        firsts, seconds = self.before[first] | 1 << first, self.after[second] | 1 << second
        for task in bits(seconds):
            self.before[task] |= firsts
        for task in bits(firsts):
            self.after[task] |= seconds

    def propagate(self) -> None:
        """Tighten windows and decide orders until nothing changes, or ROUNDS times: they may creep by single ticks."""
        for _ in range(ROUNDS):
            seen = (self.earliest[:], self.latest[:], self.before[:])
            self._dependencies()
            self._extent()
            for device in range(len(self._seen)):
                self._propagate_device(device)
            if any(first > last for first, last in zip(self.earliest, self.latest, strict=True)):
                raise Refuted
            if (self.earliest, self.latest, self.before) == seen:
                return

    def _propagate_device(self, device: int) -> None:
        """Apply the rules of one device, unless nothing has changed on it since the last time."""
        members = self.tasks.on_device[device]
        state = [(self.earliest[task], self.latest[task], self.before[task]) for task in members]
        if state == self._seen[device]:
            return
        self._seen[device] = state
        self._overlaps(members)
        self._loads(members)
        room = self.tasks.rooms[device]
        if room is not None:
            self._memory(device, room)

    def _keep(self, blocks: Sequence[Sequence[int]]) -> None:
        """Every task of a block runs before every task of the blocks after it."""
        earlier, later = 0, sum(1 << task for block in blocks for task in block)
        for block in blocks:
            own = sum(1 << task for task in block)
            later ^= own
            for task in block:
                self.before[task] |= earlier
                self.after[task] |= later
            earlier |= own

    def probe(self, deadline: float = math.inf) -> None:
        """Try both orders of every open pair, and decide for the other where propagation refutes one, until nothing
        changes or `deadline` (of time.monotonic) has passed. Raises Refuted when both are refuted.
        """
        changed = True
        while changed:
            changed = False
            for first, second in list(self.open_pairs()):
                for one, other in ((first, second), (second, first)):
                    if self.decided(first, second):
                        break
                    if time.monotonic() >= deadline:
                        return
                    trial = self.copy()
                    try:
                        trial.order(one, other)
                        trial.propagate()
                    except Refuted:
                        self.shaved.append((other, one))
                        self.order(other, one)
                        self.propagate()
                        changed = True

    def _dependencies(self) -> None:
        """start_j >= start_i + lag for every arc (i, j, lag), both ways; tasks that must start at once are pinned."""
        earliest, latest = self.earliest, self.latest
        for first, second, lag in self.tasks.arcs:
            start = earliest[first] + lag
            if start > earliest[second]:
                earliest[second] = start
        for first, second, lag in reversed(self.tasks.arcs):
            start = latest[second] - lag
            if start < latest[first]:
                latest[first] = start
        for task in self.tasks.pinned:
            latest[task] = min(latest[task], earliest[task])

    def _extent(self) -> None:
        """A device ends at most `target` after it begins: end_i - start_j <= target for its tasks i and j.

        This is what the objective span asks; for the makespan it follows from the first windows.
        """
        if self.tasks.problem.objective != "span":
            return
        durations, earliest, latest = self.tasks.durations, self.earliest, self.latest
        for members in self.tasks.on_device:
            begin = max(earliest[task] + durations[task] for task in members) - self.target
            end = min(latest[task] for task in members) + self.target
            for task in members:
                earliest[task] = max(earliest[task], begin)
                latest[task] = min(latest[task], end - durations[task])

    def _overlaps(self, members: tuple[int, ...]) -> None:
        """i runs before j when j cannot end before the latest start of i."""
        durations, earliest, latest = self.tasks.durations, self.earliest, self.latest
        by_latest = sorted(members, key=latest.__getitem__)
        everyone = sum(1 << task for task in members)
        for second in members:
            if self.before[second] | self.after[second] | 1 << second == everyone:
                continue
            end = earliest[second] + durations[second]
            for first in by_latest:
                if latest[first] >= end:
                    break
                if first != second and not self.decided(first, second):
                    self.order(first, second)

    def _loads(self, members: tuple[int, ...]) -> None:
        """A task starts after all that run before it, and ends before all that run after it:

        start_i >= min start of P + sum of durations of P, P any part of the tasks before i; and the same backwards.

        Where some j comes directly before i, after all else before i, that is the earliest end of j.
        """
        durations, earliest, latest = self.tasks.durations, self.earliest, self.latest
        by_start = sorted((earliest[task], durations[task], task) for task in members)
        last = {self.before[task] | 1 << task: task for task in members}
        for _, _, task in by_start:
            before = self.before[task]
            direct = last.get(before)
            if direct is not None:
                clock = earliest[direct] + durations[direct]
            else:
                clock = 0
                for start, duration, other in by_start:
                    if before >> other & 1:
                        clock = (clock if clock > start else start) + duration
            earliest[task] = max(earliest[task], clock)
        by_end = sorted(((latest[task] + durations[task], durations[task], task) for task in members), reverse=True)
        first = {self.after[task] | 1 << task: task for task in members}
        for _, _, task in by_end:
            after = self.after[task]
            direct = first.get(after)
            if direct is not None:
                clock = latest[direct]
            else:
                clock = by_end[0][0]
                for end, duration, other in by_end:
                    if after >> other & 1:
                        clock = (clock if clock < end else end) - duration
            latest[task] = min(latest[task], clock - durations[task])

    def _memory(self, device: int, room: int) -> None:
        """Where task k raises the memory, the lives of all micro-batches together must fit:

            sum over lives of level(tasks of the life done before k) <= room.

        Each life has done at least the tasks known to be before k and none of those known to be after it, so its least
        level in that range counts. A task whose place on one side of k would leave too little room is on the other,
        and k waits until enough can have been freed.
        """
        for task, level, own in self.tasks.raising[device]:
            self._fit(task, level, own, device, room)

    def _fit(self, task: int, level: int, own: Life, device: int, room: int) -> None:
        """Apply the memory rule to one task that raises its own life's level to `level`."""
        before, after = self.before[task], self.after[task]
        durations, earliest = self.tasks.durations, self.earliest
        total = held_now = level
        undecided = []
        for life, levels in self.tasks.lives[device]:
            if life is own.tasks:
                continue
            least = 0
            while least < len(life) and before >> life[least] & 1:
                least += 1
            most = least
            while most < len(life) and not after >> life[most] & 1:
                most += 1
            lowest = min(levels[least : most + 1])
            total += lowest
            held_now += levels[least]
            if least < most:
                undecided.append((life, levels, least, most, lowest))
        if total > room:
            raise Refuted
        slack = room - total
        for life, levels, least, most, lowest in undecided:
            for cut in range(least, most):
                if min(levels[least : cut + 1]) - lowest > slack:
                    self.order(life[cut], task)
                elif min(levels[cut + 1 : most + 1]) - lowest > slack:
                    self.order(task, life[cut])
        if held_now > room:
            events = []
            for life, levels, least, most, _ in undecided:
                level = levels[least]
                for done in range(least + 1, most + 1):
                    if levels[done] < level:
                        events.append((earliest[life[done - 1]] + durations[life[done - 1]], level - levels[done]))
                        level = levels[done]
            for time, freed in sorted(events):
                held_now -= freed
                if held_now <= room:
                    earliest[task] = max(earliest[task], time)
                    break


def lowest_target(tasks: Tasks, low: int, high: int, deadline: float = math.inf) -> int:
    """The lowest target from `low` that propagation does not refute, high + 1 when it refutes all up to `high`.

    It is a lower bound on the value (a destructive one: Klein and Scholl 1999), and also when `deadline` (of
    time.monotonic) ends the search for it early.
    """
    while low <= high and time.monotonic() < deadline:
        target = (low + high) // 2
        try:
            Windows(tasks, target)
        except Refuted:
            low = target + 1
        else:
            high = target - 1
    return low
