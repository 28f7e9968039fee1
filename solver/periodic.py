"""The kernel: what a schedule repeats in its steady state, as an ILP that does not grow with the micro-batches.

Every period, the same number of micro-batches of each direction enters, and what runs is what ran a period before
(modulo scheduling: Eichenberger and Davidson 1997). With all times divided by the period, the model is linear in its
inverse (Mayer, Haus, Raisch and Weismantel 2008), so it finds the shortest period under the caps at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pulp

from .backend import Backend
from .evaluation import BW, B, F, Model, W

Item = tuple[int, int, int]
"""An operation of a kernel: kind, lane and copy, the place of its micro-batch among those that enter in one period."""


@dataclass(frozen=True)
class Kernel:
    """A steady state: in each `period` (time units), `copies` micro-batches of each direction take their turn.

    `starts` tells when the operations of the first ones start; those of the n-th next `copies` start n periods later.
    """

    copies: int
    period: float
    starts: dict[Item, float]

    def start(self, kind: int, lane: int, number: int) -> float:
        """When an operation starts whose micro-batch is the number-th of its direction."""
        periods, copy = divmod(number, self.copies)
        return self.starts[kind, lane, copy] + periods * self.period


def find_kernel(
    model: Model, copies: int, backend: Backend, *, deadline: float, fused: frozenset[int] = frozenset()
) -> Kernel | None:
    """The kernel with the shortest period that is found until `deadline` (of time.monotonic); None where there is none.

    The stages in `fused` take fused backwards. Every micro-batch counts as the first of its direction.
    """
    ilp = KernelIlp(model, copies, fused)
    answer = backend.solve(ilp.model, deadline)
    return ilp.kernel(answer.values) if answer.values.get("u", 0.0) > 0 else None


class KernelIlp:
    """The model of the kernels with so many copies: `model` maximises the throughput u, the inverse of the period.

    `phases` holds, by operation, the variable t: its start in periods. `turns` holds, by pair of operations of one
    device, the integer q: how many instances of the second run between the ones of the first and the second that
    belong together.
    """

    def __init__(self, model: Model, copies: int, fused: frozenset[int]) -> None:
        self.problem, self.copies = model.problem, copies
        self.pipeline = model
        self.fused = fused
        self.kinds = [(F, BW) if lane % model.stages in fused else (F, B, W) for lane in range(model.lanes)]
        self.on_device = [
            [(kind, lane, copy) for lane in lanes for kind in self.kinds[lane] for copy in range(copies)]
            for lanes in model.lanes_of
        ]
        self.costs = {
            item: model.problem.cost(model.operation(item[0] * model.size + item[1] * model.depth))
            for on in self.on_device
            for item in on
        }
        self.unit = max(sum(self.costs[item].duration for item in on) for on in self.on_device) or 1.0
        """The work of the busiest device: no period is shorter. (Any unit will do where nothing takes time.)"""
        self.durations = {item: cost.duration / self.unit for item, cost in self.costs.items()}
        self.throughput = pulp.LpVariable("u", 0, 1)
        self.phases = {item: pulp.LpVariable("t{}_{}_{}".format(*item)) for item in self.durations}
        self.turns: dict[tuple[Item, Item], pulp.LpAffineExpression | pulp.LpVariable | int] = {}
        self.model = pulp.LpProblem("kernel", pulp.LpMinimize)
        self.model += -self.throughput
        self._add_dependencies()
        self._add_number_order()
        self._add_exclusion()
        self._add_copy_order()
        self._add_memory()
        self._add_first_copy()

    def kernel(self, values: dict[str, float]) -> Kernel:
        """The kernel of a solution."""
        period = self.unit / values["u"]
        starts = {item: values[phase.name] * period for item, phase in self.phases.items()}
        for (kind, lane, copy), start in list(starts.items()):
            if kind == BW:
                starts[B, lane, copy] = starts[W, lane, copy] = start
        return Kernel(self.copies, period, starts)

    def _lag(self, item: Item) -> float:
        """The transfer that an F or a backward waits for."""
        kind, lane, _ = item
        return self.pipeline.lag[kind * self.pipeline.size + lane * self.pipeline.depth] / self.unit

    def _links(self) -> Iterator[tuple[Item, Item]]:
        """Pairs of operations of one micro-batch of which the second waits for the first."""
        stages = self.pipeline.stages
        for lane, kinds in enumerate(self.kinds):
            for copy in range(self.copies):
                backward = (kinds[1], lane, copy)
                if lane % stages > 0:
                    yield (F, lane - 1, copy), (F, lane, copy)
                if lane % stages + 1 < stages:
                    yield (self.kinds[lane + 1][1], lane + 1, copy), backward
                else:
                    yield (F, lane, copy), backward
                if kinds[1] == B:
                    yield backward, (W, lane, copy)

    def _add_dependencies(self) -> None:
        """t_j >= t_i + (d_i + lag) u where j waits for i."""
        for first, second in self._links():
            lag = 0.0 if second[0] == W else self._lag(second)
            self.model += self.phases[second] >= self.phases[first] + (self.durations[first] + lag) * self.throughput

    def _add_number_order(self) -> None:
        """Each stage takes micro-batches in number order: t_c + d u <= t_(c+1), and the last copy before the first
        of the next period."""
        for (kind, lane, copy), phase in self.phases.items():
            following = self.phases[kind, lane, (copy + 1) % self.copies] + (copy + 1) // self.copies
            self.model += phase + self.durations[kind, lane, copy] * self.throughput <= following

    def _add_exclusion(self) -> None:
        """One operation at a time, in every period: d_i u <= t_j - t_i - q_ij <= 1 - d_j u, q_ij an integer
        (periodic event scheduling: Serafini and Ukovich 1989)."""
        for members in self.on_device:
            for first, second in combinations(members, 2):
                turns: pulp.LpVariable | int = 0
                if first[:2] != second[:2]:
                    turns = pulp.LpVariable("q{}_{}_{}_{}_{}_{}".format(*first, *second), cat="Integer")
                    apart = self.phases[second] - self.phases[first] - turns
                    self.model += apart >= self.durations[first] * self.throughput
                    self.model += apart <= 1 - self.durations[second] * self.throughput
                self.turns[first, second] = turns
                self.turns[second, first] = -1 - turns

    def _add_copy_order(self) -> None:
        """Copies keep their order seen from any operation i: q_i(c) <= q_i(c+1) and q_i(last) <= q_i(first) + 1.

        This follows from the times; stated for the integers it makes the model far easier to solve.
        """
        for members in self.on_device:
            for item in members:
                for kind, lane, copy in members:
                    if (kind, lane) != item[:2] and self.copies > 1:
                        following = self.turns[item, (kind, lane, (copy + 1) % self.copies)]
                        self.model += self.turns[item, (kind, lane, copy)] <= following + (copy + 1) // self.copies

    def _add_memory(self) -> None:
        """Where operation k raises the memory, what all others on its device have changed by then is held:

            static + sum over i of change_i (-1 - q_ki) - change_k + rise_k <= cap,

        because the last instance of i before k belongs to the micro-batches q_ki + 1 periods before k's own.
        """
        for device, members in enumerate(self.on_device):
            for item in members:
                cost = self.costs[item]
                if cost.rise > 0 and math.isfinite(self.problem.caps[device]):
                    held = pulp.lpSum(self.costs[i].change * (-1 - self.turns[item, i]) for i in members if i != item)
                    room = self.pipeline.tolerances[device] - self.problem.static_memory[device]
                    self.model += held - cost.change + cost.rise <= room

    def _add_first_copy(self) -> None:
        """Time begins with the first forward of the copy that has waited longest for it: all others are rotations."""
        self.model += self.phases[F, 0, 0] == 0
        for copy in range(self.copies - 1):
            gap = self.phases[F, 0, copy + 1] - self.phases[F, 0, copy]
            self.model += gap <= 1 - self.phases[F, 0, self.copies - 1]
