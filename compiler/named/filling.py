"""Filling: a greedy simulation with the measured costs that puts weight gradients into waits.

What the automatic schedules of the zero-bubble papers share (Qi et al. 2023, sections 4 and 6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..errors import InputError
from ..operation import Operation
from ..problem import Problem


class Filling:
    """The state of the simulation: per device its order, clock, held memory, time waited since its first forward and
    weight gradients put off; per stage how many forwards and backwards are done.

    `limit` is the most a device may hold, `allowed` what each may wait although others have not waited as long.
    """

    def __init__(
        self, problem: Problem, name: str, limit: Sequence[float], allowed: Sequence[float] | None = None
    ) -> None:
        p = problem.devices
        self.problem, self.name, self.p, self.m = problem, name, p, problem.microbatches
        self.limit, self.allowed = limit, allowed or [0.0] * p
        self.orders: list[list[Operation]] = [[] for _ in range(p)]
        self.clock = [0.0] * p
        self.held = [0.0] * p
        self.waited = [0.0] * p
        self.worst = 0.0
        """The longest that a device has waited."""
        self.weights: list[deque[Operation]] = [deque() for _ in range(p)]
        self.forwards = [0] * problem.stages
        self.backwards = [0] * problem.stages
        self.ends: dict[Operation, float] = {}

    def next(self, kind: str, stage: int) -> Operation:
        """The F or B of the first micro-batch whose F or B is not done on a stage."""
        return Operation(kind, stage, (self.forwards if kind == "F" else self.backwards)[stage])

    def arrival(self, operation: Operation) -> float | None:
        """When what an F or B needs from another device arrives: -1 if it needs nothing, None if not made yet."""
        kind, stage, microbatch = operation
        source = stage - 1 if kind == "F" else stage + 1
        owners = self.problem.placement.down
        if not 0 <= source < self.problem.stages or owners[source] == owners[stage]:
            return -1.0
        end = self.ends.get(Operation(kind, source, microbatch))
        if end is None:
            return None
        return end + self.problem.transfer(owners[source], owners[stage], min(stage, source), microbatch)

    def put(self, operation: Operation) -> None:
        """Execute an operation as soon as it can be. Raises InputError when what it needs is not made yet."""
        device = self.problem.device(operation)
        start = self.clock[device]
        if operation.kind != "W":
            arrival = self.arrival(operation)
            if arrival is None:
                raise InputError(f"{self.name} has no order for p = {self.p}, m = {self.m}: {operation} is too early")
            start = max(start, arrival)
        if self.orders[device]:
            self.waited[device] += start - self.clock[device]
            self.worst = max(self.worst, self.waited[device])
        self.clock[device] = self.ends[operation] = start + self.problem.duration(operation)
        self.held[device] += self.problem.cost(operation).change
        self.orders[device].append(operation)
        if operation.kind == "F":
            self.forwards[operation.stage] += 1
        elif operation.kind == "B":
            self.backwards[operation.stage] += 1
            self.weights[device].append(Operation("W", operation.stage, operation.microbatch))

    def weight(self, device: int) -> None:
        """The oldest weight gradient that was put off."""
        self.put(self.weights[device].popleft())

    def finish(self) -> None:
        """All weight gradients that are left."""
        for device in range(self.p):
            while self.weights[device]:
                self.weight(device)

    def make_room(self, device: int, change: float) -> None:
        """Weight gradients until a change of memory fits the limit."""
        while self.weights[device] and self.held[device] + change > self.limit[device] * (1 + 1e-9):
            self.weight(device)

    def fill(self, operation: Operation, *, within: bool, beyond: bool) -> None:
        """Put an operation after the weight gradients that fit before its input arrives, and perhaps one that does not.

        That one is put `within` a wait that leaves the device below the worst, or `beyond` it, where these are True.
        """
        device = self.problem.device(operation)
        arrival = self.arrival(operation)
        if arrival is None:
            arrival = -1.0
        weights = self.weights[device]
        while weights and arrival >= self.clock[device] + self.problem.duration(weights[0]):
            self.weight(device)
        wait = arrival - self.clock[device]
        spare = max(self.worst, self.allowed[device]) - self.waited[device]
        if weights and wait > 0 and (beyond if wait > spare else within):
            self.weight(device)
        self.put(operation)
