"""ZB-V (Qi et al. 2023, section 6): two chunks per device in a V, zero bubble at the memory of 1F1B.

A greedy simulation with the measured costs: waits are filled with W as soon as one fits, and where a device has already
waited less than the worst one, W goes first as well. Both fillings are tried with and without, and again with the waits
of the last try as what is allowed; the shortest span is kept.
"""

from __future__ import annotations

from collections import deque

from ..errors import InputError
from ..operation import Operation
from ..placement import v
from ..problem import Problem
from ..schedule import Schedule
from .common import refuse_fused


def zb_v(problem: Problem) -> Schedule:
    """ZB-V under its own limit of what p micro-batches hold. Needs a v placement of two chunks."""
    refuse_fused(problem, "zb-v")
    if problem.placement.down != v(problem.devices).down or problem.placement.bidirectional:
        raise InputError(f"zb-v needs a v placement of two chunks, not {problem.placement}", hint="use --placement v")
    tries = []
    for fill_backwards in (True, False):
        for fill_forwards in (True, False):
            best = _Greedy(problem, fill_forwards, fill_backwards, None).run()
            while True:
                again = _Greedy(problem, fill_forwards, fill_backwards, best.waited).run()
                if max(again.waited) >= max(best.waited):
                    break
                best = again
            tries.append(best)
    return Schedule.of(min(tries, key=lambda one: max(one.waited)).orders, "zb-v")


class _Greedy:
    """One greedy simulation. A micro-batch passes each device in two legs either way.

    Forward leg 0 is stage r, leg 1 stage 2p - 1 - r; backward leg 0 is stage 2p - 1 - r, leg 1 stage r.
    """

    def __init__(
        self, problem: Problem, fill_forwards: bool, fill_backwards: bool, allowed: list[float] | None
    ) -> None:
        p = problem.devices
        self.problem, self.p, self.m = problem, p, problem.microbatches
        self.fill_forwards, self.fill_backwards = fill_forwards, fill_backwards
        self.allowed = [max(allowed) - own for own in allowed] if allowed else [0.0] * p
        self.orders: list[list[Operation]] = [[] for _ in range(p)]
        self.clock = [0.0] * p
        self.held = [0.0] * p
        self.waited = [0.0] * p
        self.weights: list[deque[Operation]] = [deque() for _ in range(p)]
        self.forwards = [[0, 0] for _ in range(p)]
        self.backwards = [[0, 0] for _ in range(p)]
        self.ends: dict[Operation, float] = {}
        memory = problem.memories["F"]
        self.limit = [p * (memory[r] + memory[2 * p - 1 - r]) for r in range(p)]

    def run(self) -> _Greedy:
        self._warm_up()
        for _ in range(2 * self.m):
            self._backward_round()
            self._forward_round()
        for device in range(self.p):
            while self.weights[device]:
                self._weight(device)
        return self

    def _next(self, device: int, kind: str, leg: int) -> Operation:
        far = leg == 1 if kind == "F" else leg == 0
        count = (self.forwards if kind == "F" else self.backwards)[device][leg]
        return Operation(kind, 2 * self.p - 1 - device if far else device, count)

    def _arrival(self, operation: Operation) -> float | None:
        """When what an F or B needs from another device arrives: -1 if it needs nothing, None if not made yet."""
        kind, stage, microbatch = operation
        source = stage - 1 if kind == "F" else stage + 1
        owners = self.problem.placement.down
        if not 0 <= source < 2 * self.p or owners[source] == owners[stage]:
            return -1.0
        end = self.ends.get(Operation(kind, source, microbatch))
        if end is None:
            return None
        boundary = min(stage, source)
        return end + self.problem.transfer(owners[source], owners[stage], boundary, microbatch)

    def _put(self, device: int, operation: Operation) -> None:
        start = self.clock[device]
        if operation.kind != "W":
            arrival = self._arrival(operation)
            if arrival is None:
                raise InputError(f"zb-v has no order for p = {self.p}, m = {self.m}: {operation} comes too early")
            start = max(start, arrival)
        if self.forwards[device][0] > 0:
            self.waited[device] += start - self.clock[device]
        self.clock[device] = self.ends[operation] = start + self.problem.duration(operation)
        self.held[device] += self.problem.memory(operation)
        self.orders[device].append(operation)
        if operation.kind == "F":
            self.forwards[device][operation.stage >= self.p] += 1
        elif operation.kind == "B":
            self.backwards[device][operation.stage < self.p] += 1
            self.weights[device].append(Operation("W", operation.stage, operation.microbatch))

    def _weight(self, device: int) -> None:
        self._put(device, self.weights[device].popleft())

    def _forward(self, device: int, leg: int) -> None:
        if self.forwards[device][leg] < self.m:
            self._put(device, self._next(device, "F", leg))

    def _warm_up(self) -> None:
        """Forwards until every device has an equal lead, the devices below device 0 one step behind the one above."""
        p, m = self.p, self.m
        for device in range(p):
            self._forward(device, 0)
        self._forward(p - 1, 1)
        for device in reversed(range(p - 1)):
            first = self._next(device, "F", 1)
            arrival = self._arrival(first) or 0.0
            memory = self.problem.memories["F"][device]
            duration = self.problem.durations["F"][device]
            while (
                self.held[device] + memory * (2 + device * 2) <= self.limit[device]
                and self.clock[device] + duration <= arrival
                and self.forwards[device][0] < m
            ):
                for above in range(device + 1):
                    self._forward(above, 0)
            self._forward(device, 1)
        leg = 0
        for device in range(1, p):
            lead, own = self.forwards[device - 1], self.forwards[device]
            while sum(own) < sum(lead) or own[1] <= lead[1] < m:
                for below in reversed(range(device, p)):
                    self._forward(below, leg)
                leg = 1 - leg

    def _backward_round(self) -> None:
        for device in range(self.p):
            self._make_room(device, "B")
        second = [device for device in range(self.p) if self._returns(device)]
        first = [device for device in range(self.p) if device not in second]
        for device, leg in [(d, 1) for d in reversed(second)] + [(d, 0) for d in first]:
            self._fill(device, self._next(device, "B", leg), leg == 1 or self.fill_backwards)

    def _returns(self, device: int) -> bool:
        """True when the next B of a device is of its second leg: one is due, and its gradient is there."""
        turned, returned = self.backwards[device]
        if returned >= turned:
            return False
        return device == self.p - 1 or turned >= self.m or self._arrival(self._next(device, "B", 1)) is not None

    def _forward_round(self) -> None:
        for device in range(self.p):
            entered, turned = self.forwards[device]
            if turned >= self.m:
                continue
            if turned >= entered:
                leg = 0
            elif device == self.p - 1 or self._arrival(self._next(device, "F", 1)) is not None:
                leg = 1
            elif entered < self.m and self._arrival(self._next(device, "F", 0)) is not None:
                leg = 0
            else:
                continue
            self._make_room(device, "F")
            self._fill(device, self._next(device, "F", leg), self.fill_forwards)

    def _make_room(self, device: int, kind: str) -> None:
        """Weight gradients until an operation of this kind fits the limit of p micro-batches."""
        change = max(self.problem.memories[kind][stage] for stage in self.problem.placement.copies[device])
        while self.weights[device] and self.held[device] + change > self.limit[device] * (1 + 1e-9):
            self._weight(device)

    def _fill(self, device: int, operation: Operation, eager: bool) -> None:
        """Put an operation, after the weight gradients that fit before its input arrives, and one more where the
        device has waited so much less than the worst that it may."""
        arrival = self._arrival(operation)
        if arrival is None:
            arrival = -1.0
        weights = self.weights[device]
        while weights and arrival >= self.clock[device] + self.problem.duration(weights[0]):
            self._weight(device)
        spare = max(max(self.waited), self.allowed[device]) - self.waited[device]
        if weights and eager and arrival - self.clock[device] > spare:
            self._weight(device)
        self._put(device, operation)
