"""Emulation: a plan on real processes with real messages, and timed waits in place of compute.

It measures what the schedule and the runtime do when operations take exactly what the profile says, on a machine that
need not have a core per device. Every device keeps a clock of its own: an operation begins when its inputs are due and
the one before is over, later by the processor time that the runtime took in between, and the process sleeps until its
end. A value carries the time at which it is due at its consumer. So neither a sleep that lasts too long nor a process
that waits for a core puts off what follows, as long as it wakes before the next end; where it does not, the step takes
longer than its clock says. Times are the system's monotonic clock's, which the processes of one machine share.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..compiler.instruction import Compute
from ..compiler.operation import Operation, parts
from ..compiler.pictures.perfetto import NANOSECONDS
from ..compiler.plan import Plan
from .microbatch import Tensors
from .stage import Stage

SHORTEST = 0.02
"""Seconds that the shortest operation takes where the profile's time unit is not a known one."""


def unit_seconds(plan: Plan) -> float | None:
    """The seconds of one unit of the plan's times, None where its name says nothing."""
    scale = NANOSECONDS.get(plan.problem.profile.time_unit)
    return None if scale is None else scale * 1e-9


def emulated_unit(plan: Plan) -> float:
    """The seconds that an emulation takes for one unit of time."""
    known = unit_seconds(plan)
    if known is not None:
        return known
    durations = [cost.duration for costs in plan.problem.least.values() for cost in costs if cost.duration > 0]
    return SHORTEST / min(durations, default=1.0)


class Clock:
    """The time of one emulated device."""

    def __init__(self, begin: float) -> None:
        self.start(begin)

    def start(self, begin: float) -> None:
        """A step begins, at the same time on every device."""
        self.now, self._worked = begin, time.thread_time()

    def advance(self, due: float, seconds: float) -> None:
        """Let an operation whose inputs are due at a time take some seconds."""
        self.now = max(self.now + time.thread_time() - self._worked, due) + seconds
        with contextlib.suppress(ValueError):  # it is over already: the time to sleep is negative
            time.sleep(self.now - time.monotonic())
        self._worked = time.thread_time()


class EmulatedStage(Stage):
    """Waits for as long as the profile says that an operation takes, on the clock that the stages of a device share.

    `unit` is the seconds of one unit of time.
    """

    def __init__(self, number: int, plan: Plan, device: int, unit: float, clock: Clock) -> None:
        super().__init__(number, nn.Identity())
        self._plan, self._device, self._unit, self._clock = plan, device, unit, clock
        self._durations: dict[Operation, float] = {}
        for instruction in plan.streams[device]:
            if isinstance(instruction, Compute):
                operations = parts(instruction.step)
                whole = sum(map(plan.problem.duration, operations))
                ratio = plan.problem.duration(instruction.step) / whole if whole else 0.0
                self._durations.update({o: plan.problem.duration(o) * ratio * unit for o in operations})
        output = int(plan.problem.profile.stages[number].output_bytes)
        self._numbers = max(1, -(-output // 8))  # doubles, the first of which is the time when the value is due

    def try_forward(self, inputs: Tensors, keywords: Mapping[str, Any], device: torch.device) -> Tensors:
        return (torch.zeros(self._numbers, dtype=torch.float64, device=device, requires_grad=True),)

    def forward(self, microbatch: int, inputs: Tensors, **_: Any) -> Tensors:
        """F: the value for the next stage, or a loss of 0."""
        self._pass(Operation("F", self.number, microbatch), inputs if self.number > 0 else ())
        if self.number == self._plan.problem.stages - 1:
            return (torch.zeros(()),)
        return self._value(self.number + 1, self.number, microbatch, self._numbers)

    def backward(self, microbatch: int, gradients: Tensors) -> Tensors:
        """BW: the gradient for the stage before."""
        return self._backward("BW", microbatch, gradients)

    def backward_input(self, microbatch: int, gradients: Tensors) -> Tensors:
        """B: the same."""
        return self._backward("B", microbatch, gradients)

    def backward_weight(self, microbatch: int) -> None:
        """W."""
        self._pass(Operation("W", self.number, microbatch), ())

    def _backward(self, kind: str, microbatch: int, gradients: Tensors) -> Tensors:
        last = self.number == self._plan.problem.stages - 1
        self._pass(Operation(kind, self.number, microbatch), () if last else gradients)
        if self.number == 0:
            return ()
        before = int(self._plan.problem.profile.stages[self.number - 1].output_bytes)
        return self._value(self.number - 1, self.number - 1, microbatch, max(1, -(-before // 8)))

    def _pass(self, operation: Operation, received: Tensors) -> None:
        due = float(received[0][0]) if received else 0.0
        self._clock.advance(due, self._durations[operation])

    def _value(self, consumer: int, boundary: int, microbatch: int, numbers: int) -> Tensors:
        """A value of the right size that says when it is due."""
        problem = self._plan.problem
        target = problem.device(Operation("F", consumer, microbatch))
        value = torch.zeros(numbers, dtype=torch.float64)
        value[0] = self._clock.now + problem.transfer(self._device, target, boundary, microbatch) * self._unit
        return (value,)
