"""Forms: other steps for the same operations. A backward is fused or split, a pair is made or taken apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from .evaluation import BW, B, Model
from .graph import Graph, Move

NEARBY = 0.7
"""How likely the next possible partner is taken, and no farther one."""
HURRY = 0.3
"""One over the mean number of places between a B and its W when they are split."""


class Forms:
    """Which forms a problem allows, of those that may pay: what takes as long as its parts is better left apart."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.mixing = model.problem.backward == "any"
        self.pairing = model.problem.pairs_pay

    @property
    def any(self) -> bool:
        """True when there can be any other form."""
        return self.mixing or self.pairing

    def fuses(self, *parts: int) -> bool:
        """True when a B, perhaps after the forward of its pair, may be fused with its W to save time or memory."""
        model = self.model
        *_, backward = parts
        weight, fused = backward + model.size, backward + 2 * model.size
        apart = model.length(self._step(*parts)) + model.duration[weight]
        return self.mixing and (
            model.length(self._step(*parts[:-1], fused)) < apart or model.rise[fused] < model.rise[backward]
        )

    def overlaps(self, one: int, other: int) -> bool:
        """True when two steps may run as a pair, and this saves time."""
        model = self.model
        forward, backward = min(one, other), max(one, other)
        return (
            forward < model.size
            and backward // model.size in (B, BW)
            and model.problem.pair_ratios[model.lane[forward] % model.stages] < 1
            and model.batch[forward] != model.batch[backward]
        )

    def move(self, graph: Graph, block: tuple[int, int, int], chance: random.Random) -> Move | None:
        """A random other form of a step of the block, or of the backward whose W is there; None where there is none."""
        device, first, last = block
        order, index = graph.orders[device], chance.randint(first, last)
        if order[index] >= 2 * self.model.size:
            index = order.index(graph.node[order[index] - self.model.size])
        ways = list(self._ways(graph.steps[order[index]]))
        return chance.choice(ways)(graph, device, index, chance) if ways else None

    def _ways(self, step: int) -> Iterator[Callable[[Graph, int, int, random.Random], Move | None]]:
        """How a step can take another form."""
        parts = self.model.parts(step)
        kind = parts[-1] // self.model.size
        if len(parts) == 2:
            yield self._apart
        elif self.pairing:
            yield self._pair
        if kind == B and self.fuses(*parts):
            yield self._fuse
        if kind == BW and self.mixing:
            yield self._split

    def _fuse(self, graph: Graph, device: int, index: int, chance: random.Random) -> Move:
        """B, or a pair with it, and its W as one, in the place of B."""
        model, order = self.model, graph.orders[device]
        step = graph.steps[order[index]]
        *forward, backward = model.parts(step)
        weight = backward + model.size
        place = order.index(weight, index)
        fused = self._step(*forward, backward + 2 * model.size)
        return Move(device, index, place + 1, order[index:place], (fused,), (step, weight))

    def _split(self, graph: Graph, device: int, index: int, chance: random.Random) -> Move:
        """BW, or a pair with it, as B and a W some places later."""
        model, order = self.model, graph.orders[device]
        step = graph.steps[order[index]]
        *forward, backward = model.parts(step)
        weight = backward - model.size
        place = min(len(order), index + 1 + int(chance.expovariate(HURRY)))
        split = self._step(*forward, backward - 2 * model.size)
        return Move(device, index, place, [*order[index:place], weight], (split, weight), (step,))

    def _apart(self, graph: Graph, device: int, index: int, chance: random.Random) -> Move:
        """A pair as its forward and its backward, in either order."""
        pair = graph.steps[graph.orders[device][index]]
        forward, backward = self.model.parts(pair)
        window = [forward, self.model.result[backward]]
        return Move(device, index, index + 1, window[:: chance.choice((1, -1))], (forward, backward), (pair,))

    def _pair(self, graph: Graph, device: int, index: int, chance: random.Random) -> Move | None:
        """A forward or backward joins one of the other kind nearby, in the place of that."""
        order = graph.orders[device]
        x = order[index]
        towards = chance.choice((1, -1))
        places = range(index + 1, len(order)) if towards > 0 else range(index - 1, -1, -1)
        for place in places:
            y = order[place]
            if not (graph.crossable(x, y) if towards > 0 else graph.crossable(y, x)):
                return None
            one, other = graph.steps[x], graph.steps[y]
            if self.overlaps(one, other) and chance.random() < NEARBY:
                node = min(x, y)
                pair = self.model.pair(*sorted((one, other)))
                between = order[index + 1 : place] if towards > 0 else order[place + 1 : index]
                window = [*between, node] if towards > 0 else [node, *between]
                low = min(index, place)
                return Move(device, low, low + len(window) + 1, window, (pair,), (one, other))
        return None

    def _step(self, *parts: int) -> int:
        """The step of one operation, or of a forward and a backward."""
        return parts[0] if len(parts) == 1 else self.model.pair(*parts)
