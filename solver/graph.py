"""The graph of a schedule: its steps timed from both ends, and what a local change would do to its longest path."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from .evaluation import Model, Orders

Links = tuple[tuple[int, float], ...]
"""(node, time from the end of the one to the start of the other)."""


class Move(NamedTuple):
    """On a device, `window` takes the place of the nodes from index `low` to before `high`.

    They are a permutation of those, or `steps` are formed of what the `former` were.
    """

    device: int
    low: int
    high: int
    window: list[int]
    steps: tuple[int, ...] = ()
    former: tuple[int, ...] = ()


class Graph:
    """Orders as a disjunctive graph (Balas 1969): nodes are steps, arcs are dependencies and each device's order.

    A node has the number of the first F, B or W in its step; the numbers of what else is in it are nobody's, until
    `form` takes the step apart. `ends[x]` is the earliest end of node x; `tails[x]` the longest way from its end to the
    objective, so that ends + tails is the length of the longest path through it.
    """

    def __init__(self, model: Model, orders: Orders) -> None:
        self.model = model
        nodes = 3 * model.size
        self.steps = [-1] * nodes
        self.node = list(range(nodes))
        """The node in which each F, B and W runs; a BW goes by its B."""
        self.length = [0.0] * nodes
        self.rise = [0.0] * nodes
        """What a node takes at its start."""
        self.net = [0.0] * nodes
        self.letters: list[frozenset[int]] = [frozenset()] * nodes
        """Steps that share a letter differ there in their micro-batch only, or in whether they are fused."""
        self._alphabet: dict[frozenset[int], frozenset[int]] = {}
        self.needs: list[Links] = [()] * nodes
        self.feeds: list[Links] = [()] * nodes
        self.device = [model.owner[lane] for _ in range(3) for lane in range(model.lanes) for _ in range(model.depth)]
        self.orders: Orders = [[self._hold(step) for step in order] for order in orders]
        for order in self.orders:
            for x in order:
                self._link(x)
        self.before = [-1] * nodes
        self.after = [-1] * nodes
        """The neighbours of each node on its device; -1 where there is none."""
        self.held: list[list[float]] = []
        """By device and index, the memory held before the node there starts."""
        for d in range(len(orders)):
            self._chain(d, 0, len(self.orders[d]))
            self.held.append(self._memory(d))
        self.ends = [0.0] * nodes
        self.tails = [0.0] * nodes
        self.offsets = [0.0] * len(orders)
        """By device, the time from which the objective counts: its first start for span, 0 for makespan."""
        self._time_all()
        self.value = self._objective()

    def _hold(self, step: int) -> int:
        """Let a step be the node of all that is in it."""
        model = self.model
        parts = model.parts(step)
        results = [model.result[part] for part in parts]
        x = results[0]
        for result in results:
            self.node[result] = x
        self.steps[x] = step
        self.length[x] = model.length(step)
        self.rise[x] = sum(model.rise[part] for part in parts)
        self.net[x] = sum(model.change[part] for part in parts)
        letters = frozenset(result // model.depth for result in results)
        self.letters[x] = self._alphabet.setdefault(letters, letters)
        return x

    def _link(self, x: int) -> None:
        """Note what a node waits for and what waits for it."""
        model, node, size = self.model, self.node, self.model.size
        needs: list[tuple[int, float]] = []
        feeds: list[tuple[int, float]] = []
        for part in model.parts(self.steps[x]):
            source, target = model.source[part], model.target[part]
            if source >= 0:
                needs.append((node[source], model.lag[part]))
            if target >= 0:
                feeds.append((node[target], model.lag[target]))
            if size <= part < 2 * size:
                feeds.append((part + size, 0.0))
        self.needs[x], self.feeds[x] = tuple(needs), tuple(feeds)

    def form(self, steps: Iterable[int]) -> None:
        """Let these steps do what others did, on the same device; the orders and times are left to `put`."""
        nodes = [self._hold(step) for step in steps]
        for x in nodes:
            self._link(x)
        for x in nodes:
            for y, _ in (*self.needs[x], *self.feeds[x]):
                self._link(y)

    def _chain(self, device: int, low: int, high: int) -> None:
        """Note the neighbours of the nodes from index low to high."""
        order, before, after = self.orders[device], self.before, self.after
        previous = order[low - 1] if low > 0 else -1
        for x in order[low:high]:
            before[x] = previous
            if previous >= 0:
                after[previous] = x
            previous = x
        last = order[high] if high < len(order) else -1
        after[previous] = last
        if last >= 0:
            before[last] = previous

    def _memory(self, device: int) -> list[float]:
        now = self.model.problem.static_memory[device]
        return list(accumulate((self.net[x] for x in self.orders[device]), initial=now))

    def _time_all(self) -> None:
        """Ends and tails of all nodes, in a topological order."""
        left = [len(needs) + (x >= 0) for needs, x in zip(self.needs, self.before, strict=True)]
        sequence = [x for order in self.orders for x in order if left[x] == 0]
        for x in sequence:
            self.ends[x] = self._end(x)
            for y in (*(y for y, _ in self.feeds[x]), self.after[x]):
                if y >= 0:
                    left[y] -= 1
                    if left[y] == 0:
                        sequence.append(y)
        self._set_offsets()
        for x in reversed(sequence):
            self.tails[x] = self._tail(x)

    def _end(self, x: int) -> float:
        """The end of a node, from those before it."""
        ends = self.ends
        previous = self.before[x]
        now = ends[previous] if previous >= 0 else 0.0
        for y, lag in self.needs[x]:
            arrival = ends[y] + lag
            if arrival > now:
                now = arrival
        return now + self.length[x]

    def _tail(self, x: int) -> float:
        """The tail of a node, from those behind it."""
        tails, length = self.tails, self.length
        following = self.after[x]
        longest = tails[following] + length[following] if following >= 0 else -self.offsets[self.device[x]]
        for y, lag in self.feeds[x]:
            way = tails[y] + length[y] + lag
            if way > longest:
                longest = way
        return longest

    def _set_offsets(self) -> None:
        if self.model.span:
            self.offsets = [self.ends[order[0]] - self.length[order[0]] for order in self.orders]

    def _objective(self) -> float:
        return max(self.ends[order[-1]] - offset for order, offset in zip(self.orders, self.offsets, strict=True))

    def put(self, device: int, low: int, high: int, window: list[int]) -> None:
        """Let nodes take the place of others: a permutation of them, or what was formed from them.

        Only the ends and tails that change are computed anew.
        """
        order = self.orders[device]
        formed = window if len(window) != high - low else ()
        order[low:high] = window
        high = low + len(window)
        self._chain(device, low, high)
        self.held[device] = self._memory(device)
        ends, tails = self.ends, self.tails
        queue = deque(order[low : high + 1])
        queue.extend(y for x in formed for y, _ in self.feeds[x])
        while queue:
            x = queue.popleft()
            end = self._end(x)
            if end != ends[x]:
                ends[x] = end
                if self.after[x] >= 0:
                    queue.append(self.after[x])
                queue.extend(y for y, _ in self.feeds[x])
        offsets = self.offsets
        self._set_offsets()
        queue.extend(reversed(order[max(0, low - 1) : high]))
        queue.extend(y for x in formed for y, _ in self.needs[x])
        if offsets != self.offsets:
            queue.extend(row[-1] for row in self.orders)
        while queue:
            x = queue.popleft()
            tail = self._tail(x)
            if tail != tails[x]:
                tails[x] = tail
                if self.before[x] >= 0:
                    queue.append(self.before[x])
                queue.extend(y for y, _ in self.needs[x])
        self.value = self._objective()

    def crossable(self, first: int, second: int) -> bool:
        """True when the order of two nodes of a device may be turned around: certainly no path leads the other way.

        A path from `first` to `second` would go through something that first feeds and something that second needs,
        so the one would have to end no later than the other. Between identical micro-batches of one stage nothing
        would change.
        """
        if self.model.identical and not self.letters[first].isdisjoint(self.letters[second]):
            return False
        ends = self.ends
        for x, _ in self.feeds[first]:
            if x == second:
                return False
            end = ends[x]
            for y, _ in self.needs[second]:
                if ends[y] >= end:
                    return False
        return True

    def estimate(self, device: int, low: int, high: int, window: list[int]) -> float:
        """The longest path through the nodes of `window` in place of those from index `low` to before `high`.

        Exact as long as no input of the window depends on the window by way of other devices.
        """
        ends, tails, length = self.ends, self.tails, self.length
        order = self.orders[device]
        now = ends[order[low - 1]] if low > 0 else 0.0
        fresh: dict[int, float] = {}
        for x in window:
            for y, lag in self.needs[x]:
                arrival = (fresh[y] if y in fresh else ends[y]) + lag
                if arrival > now:
                    now = arrival
            now += length[x]
            fresh[x] = now
        behind = tails[order[high]] + length[order[high]] if high < len(order) else -self.offsets[device]
        longest = 0.0
        new_tails: dict[int, float] = {}
        for x in reversed(window):
            for y, lag in self.feeds[x]:
                way = (new_tails[y] if y in new_tails else tails[y]) + length[y] + lag
                if way > behind:
                    behind = way
            if fresh[x] + behind > longest:
                longest = fresh[x] + behind
            new_tails[x] = behind
            behind += length[x]
        return longest

    def blocks(self) -> list[tuple[int, int, int]]:
        """(device, first, last): maximal runs of nodes on longest paths that follow each other without idle time."""
        edge = self.value * (1 - 1e-9)
        ends, tails, length = self.ends, self.tails, self.length
        blocks = []
        for d, order in enumerate(self.orders):
            first = -1
            for index, x in enumerate(order):
                if ends[x] + tails[x] < edge:
                    first = -1
                elif first < 0 or ends[x] - length[x] > ends[order[index - 1]] * (1 + 1e-12):
                    first = index
                    blocks.append((d, index, index))
                else:
                    blocks[-1] = (d, first, index)
        return blocks

    def numbers(self) -> Orders:
        """The orders by the model's numbers."""
        return [[self.steps[x] for x in order] for order in self.orders]
