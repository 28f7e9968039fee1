"""Evaluation: orders of operations as plain integers, timed in one pass for the inner loops of the search.

It agrees with `compiler.simulation`, which stays the judge of every schedule that leaves the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from ..compiler.operation import Operation, Pair, Step
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule

F, B, W, BW = range(4)
KINDS = ("F", "B", "W", "BW")

Orders = list[list[int]]
"""For each device, the numbers of its steps, first to last."""


class Model:
    """A problem as flat lists over the numbers of its operations.

    A lane is one stage of one direction: lane = direction x stages + stage. The n-th micro-batch of a direction has
    rank n on its lanes. Operation `(kind, lane, rank)` has the number `kind x size + lane x depth + rank`; what a BW
    makes is known under the number of its B. Numbers from `pairs` on are overlapped pairs.
    """

    def __init__(self, problem: Problem) -> None:
        placement, m = problem.placement, problem.microbatches
        stages = problem.stages
        self.problem = problem
        self.devices = problem.devices
        self.stages = stages
        self.depth = (m + 1) // 2 if placement.bidirectional else m
        self.counts = [self.depth, m - self.depth] if placement.bidirectional else [m]
        """Micro-batches of each direction."""
        self.lanes = stages * len(self.counts)
        self.size = self.lanes * self.depth
        self.pairs = 4 * self.size
        owners = list(placement.down) + list(placement.up or ())
        self.owner = owners
        """The device of each lane."""
        self.lanes_of = [[lane for lane in range(self.lanes) if owners[lane] == d] for d in range(self.devices)]
        self.span = problem.objective == "span"
        self.tolerances = [cap * (1 + 1e-9) + 1e-12 for cap in problem.caps]
        """The cap of each device, as `Problem.within_cap` rounds it."""
        self.duration: list[float] = []
        self.rise: list[float] = []
        """What the memory rises by at the start of each operation."""
        self.change: list[float] = []
        """The memory change of each operation, from before it to after it."""
        for kind in KINDS:
            for lane in range(self.lanes):
                direction, stage = divmod(lane, stages)
                for rank in range(self.depth):
                    microbatch = min(direction * self.depth + rank, m - 1)  # a direction may have one less
                    duration, rise, change = problem.cost(Operation(kind, stage, microbatch))
                    self.duration.append(duration)
                    self.rise.append(rise)
                    self.change.append(change)
        self._link()

    def _link(self) -> None:
        """`source[x]`: the operation that x waits for (-1: none), a W for its B; `lag[x]`: the transfer from it.

        `target[x]`: the one F or B that waits for x. That a B comes after the F of its own stage follows from the other
        links, so it is none itself, but for the turn from F to B.
        """
        problem, size, depth, stages = self.problem, self.size, self.depth, self.stages
        self.source = [-1] * (4 * size)
        self.lag = [0.0] * (4 * size)
        self.target = [-1] * (4 * size)
        self.result = list(range(4 * size))
        """The number under which the end of an operation is noted."""
        self.result[3 * size :] = range(size, 2 * size)
        for lane in range(self.lanes):
            direction, stage = divmod(lane, stages)
            for rank in range(self.counts[direction]):
                here = lane * depth + rank
                microbatch = direction * depth + rank
                if stage > 0:
                    before = problem.transfer(self.owner[lane - 1], self.owner[lane], stage - 1, microbatch)
                    self._join(here - depth, here, before)
                if stage + 1 < stages:
                    back = problem.transfer(self.owner[lane + 1], self.owner[lane], stage, microbatch)
                    self._join(size + here + depth, size + here, back)
                else:
                    self._join(here, size + here, 0.0)
                self.source[2 * size + here] = size + here
                self.source[3 * size + here] = self.source[size + here]
                self.lag[3 * size + here] = self.lag[size + here]
                self.target[3 * size + here] = self.target[size + here]
                if stage > 0:
                    self.target[3 * size + here] = size + here - depth

    def _join(self, source: int, target: int, lag: float) -> None:
        self.source[target] = source
        self.lag[target] = lag
        self.target[source] = target

    @cached_property
    def total(self) -> int:
        """F, B and W operations of the problem."""
        return 3 * self.stages * self.problem.microbatches

    @cached_property
    def lane(self) -> list[int]:
        """The lane of each operation."""
        return [lane for _ in KINDS for lane in range(self.lanes) for _ in range(self.depth)]

    @cached_property
    def batch(self) -> list[int]:
        """The micro-batch of each operation."""
        bases = [lane // self.stages * self.depth for lane in range(self.lanes)]
        return [base + rank for _ in KINDS for base in bases for rank in range(self.depth)]

    @cached_property
    def least_work(self) -> list[float]:
        """The time each device computes when every backward takes its cheaper form and nothing overlaps."""
        split = self.problem.backward == "split"
        work = [0.0] * self.devices
        for lane, device in enumerate(self.owner):
            for x in range(lane * self.depth, lane * self.depth + self.counts[lane // self.stages]):
                backward = self.duration[x + self.size] + self.duration[x + 2 * self.size]
                if not split:
                    backward = min(backward, self.duration[x + 3 * self.size])
                work[device] += self.duration[x] + backward
        return work

    @cached_property
    def needs(self) -> list[list[list[float]]]:
        """By device, micro-batch and number of its forwards and backwards done there: the most that it will hold there.

        When every W follows its B at once, and backwards are fused where that is allowed.
        """
        kind = B if self.problem.backward == "split" else BW
        needs = []
        for lanes in self.lanes_of:
            by_batch = []
            for microbatch in range(self.problem.microbatches):
                direction, rank = divmod(microbatch, self.depth)
                cells = [lane * self.depth + rank for lane in lanes if lane // self.stages == direction]
                held, curve = 0.0, []
                for cell in cells:
                    held += self.change[cell]
                    curve.append(held)
                for cell in reversed(cells):
                    curve.append(held + self.rise[kind * self.size + cell])
                    held -= self.change[cell]
                by_batch.append([max(curve[index:], default=0.0) for index in range(len(curve) + 1)])
            needs.append(by_batch)
        return needs

    @cached_property
    def identical(self) -> bool:
        return self.problem.identical_microbatches

    def pair(self, forward: int, backward: int) -> int:
        """The number of an overlapped pair."""
        return self.pairs + forward * self.pairs + backward

    def parts(self, step: int) -> tuple[int, ...]:
        """The operations of a step: itself, or the two of a pair (forward first)."""
        return (step,) if step < self.pairs else divmod(step - self.pairs, self.pairs)

    def length(self, step: int) -> float:
        """The duration of a step."""
        if step < self.pairs:
            return self.duration[step]
        forward, backward = self.parts(step)
        return self.problem.pair_ratios[forward // self.depth % self.stages] * (
            self.duration[forward] + self.duration[backward]
        )

    def number(self, operation: Operation) -> int:
        """The number of an operation."""
        direction, rank = divmod(operation.microbatch, self.depth)
        lane = direction * self.stages + operation.stage
        return KINDS.index(operation.kind) * self.size + lane * self.depth + rank

    def operation(self, number: int) -> Operation:
        """The operation of a number."""
        kind, rest = divmod(number, self.size)
        lane, rank = divmod(rest, self.depth)
        direction, stage = divmod(lane, self.stages)
        return Operation(KINDS[kind], stage, direction * self.depth + rank)

    def orders(self, schedule: Schedule) -> Orders:
        """The numbers of a schedule's steps; identical micro-batches in number order at every stage."""
        orders = [
            [
                self.number(step)
                if isinstance(step, Operation)
                else self.pair(self.number(step.forward), self.number(step.backward))
                for step in order
            ]
            for order in schedule.orders
        ]
        return self.sorted(orders) if self.identical else orders

    def sorted(self, orders: Orders) -> Orders:
        """Rename identical micro-batches so that each stage takes them in number order, which costs nothing.

        Where a stage has both fused and split backwards, it is left as it is: the kinds would change places.
        """
        if any(step >= 3 * self.size for order in orders for step in order):
            return orders
        seen: dict[int, int] = {}
        renamed: Orders = []
        for order in orders:
            row = []
            for step in order:
                letter = step // self.depth
                rank = seen.get(letter, 0)
                seen[letter] = rank + 1
                row.append(letter * self.depth + rank)
            renamed.append(row)
        return renamed

    def schedule(self, orders: Sequence[Sequence[int]], method: str) -> Schedule:
        """The schedule of these orders."""

        def step(number: int) -> Step:
            if number < self.pairs:
                return self.operation(number)
            forward, backward = self.parts(number)
            return Pair(self.operation(forward), self.operation(backward))

        return Schedule.of(([step(number) for number in order] for order in orders), method)

    def ends(self, orders: Sequence[Sequence[int]], sequence: list[int] | None = None) -> list[float] | None:
        """The end of every operation by number, as early as the orders allow; None when they deadlock.

        Steps are appended to `sequence` so that each comes after all that it waits for.
        """
        duration, source, lag, result, pairs = self.duration, self.source, self.lag, self.result, self.pairs
        ends = [-1.0] * pairs
        ends.append(0.0)  # where nothing is waited for, the source is -1
        blocked: dict[int, int] = {}
        clock = [0.0] * len(orders)
        place = [0] * len(orders)
        runnable = list(range(len(orders)))[::-1]
        left = sum(map(len, orders))
        while runnable:
            d = runnable.pop()
            order, now, first = orders[d], clock[d], place[d]
            index = first
            for x in order[first:] if first else order:
                if x < pairs:
                    s = source[x]
                    time = ends[s]
                    if time < 0.0:
                        blocked[s] = d
                        break
                    time += lag[x]
                    now = (time if time > now else now) + duration[x]
                    x = result[x]
                    ends[x] = now
                    if x in blocked:
                        runnable.append(blocked.pop(x))
                else:
                    both = self.parts(x)
                    missing = [source[part] for part in both if ends[source[part]] < 0.0]
                    if missing:
                        blocked[missing[0]] = d
                        break
                    now = max(now, *(ends[source[part]] + lag[part] for part in both)) + self.length(x)
                    for part in both:
                        ends[result[part]] = now
                        if result[part] in blocked:
                            runnable.append(blocked.pop(result[part]))
                index += 1
            if sequence is not None:
                sequence.extend(order[first:index])
            left -= index - first
            clock[d], place[d] = now, index
        return None if left else ends

    def end(self, ends: list[float], step: int) -> float:
        """The end of a step, from the ends of all operations."""
        return ends[self.result[self.parts(step)[0]]]

    def offsets(self, orders: Sequence[Sequence[int]], ends: list[float]) -> list[float]:
        """The time from which the objective counts each device: its first start for span, 0 for makespan."""
        if not self.span:
            return [0.0] * len(orders)
        return [self.end(ends, order[0]) - self.length(order[0]) for order in orders]

    def value(self, orders: Sequence[Sequence[int]], ends: list[float]) -> float:
        """The objective: makespan or span. (The first start of all is 0: what nothing precedes starts at once.)"""
        offsets = self.offsets(orders, ends)
        return max(self.end(ends, order[-1]) - offset for order, offset in zip(orders, offsets, strict=True))

    def evaluate(self, orders: Sequence[Sequence[int]]) -> float:
        """The objective of these orders; infinite when they deadlock."""
        ends = self.ends(orders)
        return math.inf if ends is None else self.value(orders, ends)

    def peak(self, device: int, order: Sequence[int]) -> float:
        """The most memory a device holds while it executes an order."""
        held = peak = self.problem.static_memory[device]
        for step in order:
            parts = self.parts(step)
            peak = max(peak, held + sum(self.rise[x] for x in parts))
            held += sum(self.change[x] for x in parts)
        return peak
