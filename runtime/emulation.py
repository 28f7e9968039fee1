"""Emulation: a plan on real processes with real messages, and timed waits in place of compute.

It measures what the schedule and the runtime do when operations take exactly what the profile says, on a machine that
need not have a core per device. A value carries the time at which it is due at its consumer, so that transfers take
what the profile says, too. Times are those of the system's monotonic clock, which the processes of one machine share.
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


class EmulatedStage(Stage):
    """Waits for as long as the profile says that an operation takes. `unit` is the seconds of one unit of time."""

    def __init__(self, number: int, plan: Plan, device: int, unit: float) -> None:
        super().__init__(number, nn.Identity())
        self._plan, self._device, self._unit = plan, device, unit
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
        if self.number > 0:
            _await(inputs)
        self._pass(Operation("F", self.number, microbatch))
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
        self._pass(Operation("W", self.number, microbatch))

    def _backward(self, kind: str, microbatch: int, gradients: Tensors) -> Tensors:
        if self.number < self._plan.problem.stages - 1:
            _await(gradients)
        self._pass(Operation(kind, self.number, microbatch))
        if self.number == 0:
            return ()
        before = int(self._plan.problem.profile.stages[self.number - 1].output_bytes)
        return self._value(self.number - 1, self.number - 1, microbatch, max(1, -(-before // 8)))

    def _pass(self, operation: Operation) -> None:
        time.sleep(self._durations[operation])

    def _value(self, consumer: int, boundary: int, microbatch: int, numbers: int) -> Tensors:
        """A value of the right size that says when it is due."""
        problem = self._plan.problem
        target = problem.device(Operation("F", consumer, microbatch))
        value = torch.zeros(numbers, dtype=torch.float64)
        value[0] = time.monotonic() + problem.transfer(self._device, target, boundary, microbatch) * self._unit
        return (value,)


def _await(value: Tensors) -> None:
    """Wait until the transfer of a value would be over."""
    with contextlib.suppress(ValueError):  # it is already: the time to sleep is negative
        time.sleep(float(value[0][0]) - time.monotonic())
