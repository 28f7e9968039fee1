"""What one micro-batch passes, in whole ticks: costs, lags, and how fast a device passes micro-batches on.

All times are least times over the operations that a schedule may use: B or BW, alone or in an overlapped pair. They
are rounded down, so that bounds made of them hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

from .cost import Costs
from .problem import Problem

MAX_EXACT_SCALE = 10**9
ROUNDED_DIGITS = 12

Line = tuple[int, int]
"""(offset, rate): the time offset + j * rate for the j-th micro-batch."""


class Clock:
    """The costs of one micro-batch, by default what none undercuts, in ticks.

    Exact where they are decimal numbers of few digits, else rounded down.
    """

    def __init__(self, problem: Problem, microbatch: int | None = None) -> None:
        self.problem = problem
        profile = problem.profile
        factors = profile.microbatches or (1.0,) * problem.microbatches
        self.microbatch = factors.index(min(factors)) if microbatch is None else microbatch
        self.factor = _exact(factors[self.microbatch])
        self.ratios = tuple(map(_exact, problem.pair_ratios))
        self.evenness = _exact(min(factors)) / _exact(max(factors)) if max(factors) > 0 else Fraction(1)
        """The least factor of a micro-batch over the largest."""
        self.split, self.fused = problem.backward != "fused", problem.backward != "split"
        costs = problem.least
        if microbatch is not None:
            own = [problem.costs[line[microbatch]] for line in problem.chosen]
            costs = {kind: tuple(table[kind][stage] for stage, table in enumerate(own)) for kind in costs}
        self.durations = _times(costs, self.factor)
        self.partners = _times(problem.least, _exact(min(factors)))
        """The durations that no other micro-batch in a pair undercuts."""
        times = {value for values in self.durations.values() for value in values} | set(self._transfers())
        for stage, share in enumerate(self.ratios):
            if share < 1:
                times |= {
                    share * (self.durations["F"][stage] + value)
                    for kind in ("B", "BW")
                    for value in self.durations[kind]
                }
        scale = math.lcm(*(time.denominator for time in times))
        if scale > MAX_EXACT_SCALE:
            scale = 10 ** max(0, ROUNDED_DIGITS - math.floor(math.log10(max(times))))
        self.scale = scale

    def _transfers(self) -> Iterator[Fraction]:
        for owners in filter(None, (self.problem.placement.down, self.problem.placement.up)):
            for stage, (a, b) in enumerate(pairwise(owners)):
                yield from (self.exact_transfer(a, b, stage), self.exact_transfer(b, a, stage))

    def exact_transfer(self, source: int, target: int, stage: int) -> Fraction:
        return _exact(self.problem.transfer(source, target, stage, self.microbatch))

    def ticks(self, value: float) -> int:
        """The least whole number of ticks that counts as reaching `value`, up to the rounding of floats."""
        return math.ceil(Fraction(value) * self.scale * (1 - Fraction(1, 2 * 10**9)))

    def time(self, ticks: Fraction | int) -> float:
        """Ticks in time units."""
        return float(Fraction(ticks) / self.scale)

    def down(self, time: Fraction) -> int:
        """A time in ticks, rounded down."""
        return math.floor(time * self.scale)

    def transfer(self, source: int, target: int, stage: int) -> int:
        return self.down(self.exact_transfer(source, target, stage))

    def pairs(self, forwards: list[int], stages: list[int], kind: str) -> Iterator[tuple[int, int, int]]:
        """(forward's stage, backward's stage, duration) of the pairs worth having with backwards of one kind."""
        for forward in forwards:
            if self.ratios[forward] < 1:
                for stage in stages:
                    time = self.ratios[forward] * (self.durations["F"][forward] + self.durations[kind][stage])
                    yield forward, stage, self.down(time)

    @property
    def backwards(self) -> list[str]:
        """The kinds of backward a schedule may use."""
        return ["B"] * self.split + ["BW"] * self.fused


def _times(costs: Costs, factor: Fraction) -> dict[str, tuple[Fraction, ...]]:
    return {kind: tuple(_exact(cost.duration) * factor for cost in column) for kind, column in costs.items()}


def _exact(value: float) -> Fraction:
    """The decimal number that a float is written as."""
    return Fraction(repr(float(value)))


@dataclass(frozen=True)
class Route:
    """What one micro-batch of a direction passes: F of every stage, then B of every stage backwards; times in ticks.

    `starts[i]` is the earliest start of position i when nothing else runs; `latencies[i]` its least duration until its
    result leaves, `ends[i]` the least time from its start to the end of it and, for a backward, of its W;
    `shares`, `weights` and `wholes` are device times of the flow part, of W, and of both, such that no step takes less
    than the shares of what runs in it: a pair's time is shared out between its forward and its backward.
    """

    microbatches: int
    kinds: tuple[str, ...]
    stages: tuple[int, ...]
    devices: tuple[int, ...]
    starts: tuple[int, ...]
    latencies: tuple[int, ...]
    ends: tuple[int, ...]
    shares: tuple[int, ...]
    weights: tuple[int, ...]
    wholes: tuple[int, ...]

    def gap(self, before: int, position: int) -> int:
        """The least time from the end of one position to the start of a later one."""
        return self.starts[position] - self.starts[before] - self.latencies[before]

    def convoys(self, before: int, position: int) -> tuple[tuple[int, int], ...]:
        """How micro-batches can arrive at a position from `before`, when all between is left out.

        A device with operations between, of total duration L per micro-batch, works off those of i..j one by one after
        the i-th reaches it and before the j-th leaves it: the j-th arrives (j - i + 1) * L and the way to and from
        that device after the i-th left `before`.
        """
        lag = self.gap(before, position)
        found = {(lag, 0)}
        between: dict[int, list[int]] = {}
        for middle in range(before + 1, position):
            between.setdefault(self.devices[middle], []).append(middle)
        for inside in between.values():
            rate = self._work(inside, self.shares, self.latencies)
            way = self.gap(before, inside[0]) + self.gap(inside[-1], position)
            found.add((way + rate, rate))
            # A single operation of the device is passed at its own rate even where its neighbours lie between.
            found.add((lag, max(self.latencies[i] for i in inside)))
        if lag == 0 and self.devices[before] == self.devices[position]:
            return ()
        return upper(found)

    def heads(self, position: int) -> tuple[int, ...]:
        """The earliest start of every micro-batch at a position, from an empty start: `convoys` from time 0."""
        lines = {(self.starts[position], 0)}
        for places in self.places.values():
            inside = [i for i in places if i < position]
            if inside:
                rate = self._work(inside, self.shares, self.latencies)
                lines.add((self.starts[inside[0]] + self.gap(inside[-1], position) + rate, rate))
        return highest(lines, self.microbatches)

    def _work(self, inside: list[int], shares: tuple[int, ...], alone: tuple[int, ...]) -> int:
        """The least time in which a device does what one micro-batch needs at these positions.

        Its forwards, or its backwards, never share a step with each other.
        """
        kinds = ([alone[i] for i in inside if self.kinds[i] == kind] for kind in "FB")
        return max(sum(shares[i] for i in inside), *map(sum, kinds))

    @cached_property
    def places(self) -> dict[int, list[int]]:
        """The positions on each device, ascending."""
        places: dict[int, list[int]] = {}
        for position, device in enumerate(self.devices):
            places.setdefault(device, []).append(position)
        return places

    @cached_property
    def onward(self) -> list[int]:
        """The least time from the end of each position to the end of all that comes after it on the route."""
        onward = [0] * len(self.kinds)
        for i in range(len(self.kinds) - 2, -1, -1):
            onward[i] = self.gap(i, i + 1) + max(self.ends[i + 1], self.latencies[i + 1] + onward[i + 1])
        return onward

    def tails(self, position: int) -> set[Line]:
        """The least time from the end of a position to the end of the schedule, by the micro-batches that follow.

        The route's longest rest with the W at any place; and each other device, which has to work off what this
        micro-batch and the following ones need of it, and then nothing or the rest of the route.
        """
        lines = {(self.onward[position], 0)}
        for device in self.places:
            lines |= self.tails_of(position, device, self.onward)
        return lines

    def tails_of(self, position: int, device: int, onward: list[int] | None = None) -> set[Line]:
        """The least time from the end of a position until a device is done, or, with `onward`, all after it."""
        ahead = [i for i in self.places[device] if i > position]
        if not ahead:
            return set()
        lines = {(max(self.gap(position, i) + self.ends[i] for i in ahead), 0)}
        if self.devices[position] != device:
            way = self.gap(position, ahead[0])
            whole = self._work(ahead, self.wholes, self.ends)
            lines.add((way + whole, whole))
            if onward is not None:
                flow = self._work(ahead, self.shares, self.latencies)
                lines.add((way + flow + onward[ahead[-1]], flow))
        return lines


def upper(lines: set[Line]) -> tuple[Line, ...]:
    """The (offset, rate) that no other reaches in both, by rate."""
    upper: list[Line] = []
    for offset, rate in sorted(lines, reverse=True):
        if not upper or rate > upper[-1][1]:
            upper.append((offset, rate))
    return tuple(upper)


def highest(lines: set[Line], count: int) -> tuple[int, ...]:
    """The largest offset + j * rate for every j below `count`."""
    best = upper(lines)
    return tuple(max(offset + j * rate for offset, rate in best) for j in range(count))


@lru_cache(maxsize=4)
def prepared(problem: Problem) -> tuple[Clock, tuple[Route, ...]]:
    """The costs that no micro-batch undercuts, and the route of each direction that has micro-batches."""
    placement, m, clock = problem.placement, problem.microbatches, Clock(problem)
    up = m // 2 if placement.bidirectional else 0
    directions = ((placement.down, m - up), (placement.up, up))
    return clock, tuple(route(problem, clock, owners, count) for owners, count in directions if owners and count)


def route(problem: Problem, clock: Clock, owners: tuple[int, ...], count: int) -> Route:
    """The route of `count` micro-batches whose stages are on these devices."""
    stages = (*range(problem.stages), *reversed(range(problem.stages)))
    kinds = ("F",) * problem.stages + ("B",) * problem.stages
    devices = tuple(owners[stage] for stage in stages)
    columns: list[tuple[int, int, int, int, int]] = []
    for kind, stage, device in zip(kinds, stages, devices, strict=True):
        columns.append(_least(problem, clock, kind, stage, device))
    starts = [0]
    for position in range(1, len(stages)):
        boundary = min(stages[position - 1], stages[position])
        transfer = clock.transfer(devices[position - 1], devices[position], boundary)
        starts.append(starts[-1] + columns[position - 1][0] + transfer)
    return Route(count, kinds, stages, devices, tuple(starts), *zip(*columns, strict=True))


def _least(problem: Problem, clock: Clock, kind: str, stage: int, device: int) -> tuple[int, int, int, int, int]:
    """(latency, end, share, weight, whole) of `Route`: the least over the operations that a schedule may use."""
    held = problem.placement.copies[device]
    down, durations = clock.down, clock.durations
    overlapping = min(Fraction(1), *(clock.ratios[s] for s in held))
    if kind == "F":
        share = latency = alone = durations["F"][stage]
        ratio = clock.ratios[stage]
        if ratio < 1:
            partner = min(clock.partners[back][s] for back in clock.backwards for s in held)
            latency = min(alone, ratio * (alone + partner))
            # Backwards count as if they overlapped with the cheapest forward; the others bear what that leaves out.
            share = min(alone, ratio * alone + (ratio - overlapping) * partner * clock.evenness)
        return down(latency), down(latency), down(share), 0, down(share)
    # With which forward, or none, and at what ratio.
    ways = [
        (Fraction(1), Fraction(0)),
        *((clock.ratios[s], clock.partners["F"][s]) for s in held if clock.ratios[s] < 1),
    ]
    leaves = {
        back: down(min(ratio * (durations[back][stage] + forward) for ratio, forward in ways))
        for back in clock.backwards
    }
    shares = {back: down(durations[back][stage] * overlapping) for back in clock.backwards}
    weight = down(durations["W"][stage])
    after = {"B": weight, "BW": 0}
    return (
        min(leaves.values()),
        min(leaves[back] + after[back] for back in leaves),
        min(shares.values()),
        weight if clock.split else 0,
        min(shares[back] + after[back] for back in shares),
    )
