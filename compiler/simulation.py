"""Simulation: when every step of a schedule starts and ends, and what memory it holds.

Each step starts as soon as its device is free and its inputs have arrived; transfers neither contend nor block compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from .errors import DebubbleError
from .operation import Operation, Step, parts
from .problem import Problem
from .schedule import Schedule


@dataclass(frozen=True)
class Execution:
    """How far the orders of a schedule run: `starts[d]` and `ends[d]` for the steps of device d that could execute.

    `sequence` lists (device, index) of these steps so that each comes after everything it depends on.
    """

    starts: list[list[float]]
    ends: list[list[float]]
    sequence: list[tuple[int, int]]
    complete: bool


def inputs(operation: Operation, stages: int) -> Iterator[Operation]:
    """The operations whose results this one needs; a gradient is named by its B, whether B or BW makes it."""
    kind, stage, microbatch = operation
    if kind == "F":
        if stage > 0:
            yield Operation("F", stage - 1, microbatch)
    elif kind == "W":
        yield Operation("B", stage, microbatch)
    else:
        yield Operation("F", stage, microbatch)
        if stage + 1 < stages:
            yield Operation("B", stage + 1, microbatch)


def execute(problem: Problem, schedule: Schedule, *, given: Iterable[Operation] = ()) -> Execution:
    """Run the orders as far as they go, in time linear in the number of steps.

    A schedule that deadlocks, or misses an input, leaves `complete` False and the lists of the stuck devices short.
    The values `given` (a gradient is named by its B) are there from the start.
    """
    orders, stages, m = schedule.orders, problem.stages, problem.microbatches
    size = stages * m  # values are numbers: an activation stage * m + microbatch, its gradient that + size
    arrived: list[float | None] = [None] * (2 * size)
    source = [0] * (2 * size)
    for value in given:
        number = value.stage * m + value.microbatch + (0 if value.kind == "F" else size)
        arrived[number], source[number] = 0.0, problem.device(value)
    waiting: dict[int, list[int]] = defaultdict(list)
    starts: list[list[float]] = [[] for _ in orders]
    ends: list[list[float]] = [[] for _ in orders]
    sequence: list[tuple[int, int]] = []
    clock = [0.0] * len(orders)
    runnable = list(range(len(orders)))[::-1]
    duration, transfer = problem.duration, problem.transfer
    while runnable:
        device = runnable.pop()
        order, begun, ended = orders[device], starts[device], ends[device]
        now = clock[device]
        for index in range(len(begun), len(order)):
            step = order[index]
            operations = (step,) if isinstance(step, Operation) else step
            start = now
            missing = -1
            for kind, stage, microbatch in operations:
                cell = stage * m + microbatch
                needs: tuple[int, ...]
                if kind == "F":
                    needs = (cell - m,) if stage else ()
                elif kind == "W":
                    needs = (size + cell,)
                else:
                    needs = (cell, size + cell + m) if stage + 1 < stages else (cell,)
                for need in needs:
                    time = arrived[need]
                    if time is None:
                        missing = need
                        break
                    if source[need] != device:
                        boundary = stage - 1 if kind == "F" else stage
                        time += transfer(source[need], device, boundary, microbatch)
                    if time > start:
                        start = time
                if missing >= 0:
                    break
            if missing >= 0:
                waiting[missing].append(device)
                break
            now = start + duration(step)
            begun.append(start)
            ended.append(now)
            sequence.append((device, index))
            for kind, stage, microbatch in operations:
                if kind != "W":
                    made = stage * m + microbatch + (0 if kind == "F" else size)
                    arrived[made], source[made] = now, device
                    if made in waiting:
                        runnable.extend(waiting.pop(made))
        clock[device] = now
    complete = all(len(done) == len(order) for done, order in zip(starts, orders, strict=True))
    return Execution(starts, ends, sequence, complete)


def simulate(problem: Problem, schedule: Schedule) -> Timeline:
    """The timeline of a valid schedule. Raises DebubbleError when the orders deadlock; verify them first."""
    execution = execute(problem, schedule)
    if not execution.complete:
        raise DebubbleError("the schedule cannot be executed: its orders deadlock or miss an operation")
    return Timeline(problem, schedule, execution)


@dataclass(frozen=True)
class Timeline:
    """A schedule with the start and end of every step: `starts[d][i]` belongs to `schedule.orders[d][i]`."""

    problem: Problem
    schedule: Schedule
    execution: Execution

    @property
    def starts(self) -> list[list[float]]:
        return self.execution.starts

    @property
    def ends(self) -> list[list[float]]:
        return self.execution.ends

    @cached_property
    def makespan(self) -> float:
        """Last end minus first start over all devices."""
        last = max((ends[-1] for ends in self.ends if ends), default=0.0)
        return last - min((starts[0] for starts in self.starts if starts), default=0.0)

    @cached_property
    def span(self) -> float:
        """The longest (last end - first start) of one device."""
        return max((e[-1] - s[0] for s, e in zip(self.starts, self.ends, strict=True) if s), default=0.0)

    @property
    def value(self) -> float:
        """The objective of the problem: makespan or span."""
        return self.span if self.problem.objective == "span" else self.makespan

    @cached_property
    def busy(self) -> list[float]:
        """The time each device computes."""
        return [
            sum(e - s for s, e in zip(starts, ends, strict=True))
            for starts, ends in zip(self.starts, self.ends, strict=True)
        ]

    def bubble_ratio(self, value: float | None = None) -> float | None:
        """(T - ideal) / ideal: T is `value` (default: the objective), ideal the busy time of the busiest device.

        None when nothing takes any time.
        """
        ideal = max(self.busy)
        return (self.value if value is None else value) / ideal - 1 if ideal > 0 else None

    @property
    def idle_fraction(self) -> float:
        """Idle time of all devices / (devices x makespan)."""
        total = len(self.busy) * self.makespan
        return 1 - sum(self.busy) / total if total > 0 else 0.0

    def memory_curve(self, device: int) -> list[tuple[float, float]]:
        """(time, memory held from then on), at every change on one device, from its static memory."""
        return [
            (time, held)
            for time, held in _memory_events(
                self.problem, device, self.schedule.orders[device], self.starts[device], self.ends[device]
            )
        ]

    @cached_property
    def peak_memory(self) -> list[float]:
        """The most memory held on each device at any time."""
        return [peak_memory(self.problem, d, order) for d, order in enumerate(self.schedule.orders)]

    def critical_path(self) -> list[tuple[int, Step, float, float]]:
        """A chain of (device, step, start, end) without slack, up to the last end of the device that decides.

        Each step starts when the one before ends on its device, or when that one's result arrives.
        """
        if self.problem.objective == "span":
            lengths = [e[-1] - s[0] if e else 0.0 for s, e in zip(self.starts, self.ends, strict=True)]
        else:
            lengths = [e[-1] if e else 0.0 for e in self.ends]
        device = lengths.index(max(lengths))
        made = self.schedule.makers()
        path = []
        index = len(self.ends[device]) - 1
        while index >= 0:
            step, start = self.schedule.orders[device][index], self.starts[device][index]
            path.append((device, step, start, self.ends[device][index]))
            before = None
            for operation in parts(step):
                for need in inputs(operation, self.problem.stages):
                    d, i = made[need]
                    boundary = min(need.stage, operation.stage)
                    arrival = self.ends[d][i] + self.problem.transfer(d, device, boundary, need.microbatch)
                    if d != device and arrival >= start - 1e-9 * abs(start):
                        before = (d, i)
            if before is None:
                before = (device, index - 1)
            device, index = before
        return path[::-1]


def _memory_events(
    problem: Problem, device: int, order: tuple[Step, ...], starts: list[float], ends: list[float]
) -> Iterator[tuple[float, float]]:
    """(time, held) after every change: what a step takes comes at its start, what it frees goes at its end."""
    held = problem.static_memory[device]
    yield 0.0, held
    for step, start, end in zip(order, starts, ends, strict=True):
        rise, change = problem.memory(step)
        if rise > 0:
            yield start, held + rise
        held += change
        if change < rise:
            yield end, held


def peak_memory(problem: Problem, device: int, order: tuple[Step, ...]) -> float:
    """The most a device holds while it executes an order. The order decides it: times do not matter."""
    nowhere = [0.0] * len(order)
    return max(held for _, held in _memory_events(problem, device, order, nowhere, nowhere))
