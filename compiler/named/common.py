"""What the rules of named schedules share."""

from __future__ import annotations

from ..errors import InputError
from ..operation import Operation
from ..problem import Problem


def forward(stage: int, microbatch: int) -> Operation:
    return Operation("F", stage, microbatch)


def backward(problem: Problem, stage: int, microbatch: int) -> tuple[Operation, ...]:
    """A whole backward: fused where that is allowed, else B with W at once."""
    if problem.backward == "split":
        return Operation("B", stage, microbatch), Operation("W", stage, microbatch)
    return (Operation("BW", stage, microbatch),)


def single_stages(problem: Problem, name: str) -> list[int]:
    """The one stage of each device. Raises InputError when a device owns more, or there are two directions."""
    placement = problem.placement
    if placement.bidirectional or any(len(stages) != 1 for stages in placement.copies):
        raise InputError(f"{name} needs one stage per device, not a {placement.kind} placement", hint="use linear")
    return [stages[0] for stages in placement.copies]


def refuse_fused(problem: Problem, name: str) -> None:
    if problem.backward == "fused":
        raise InputError(f"{name} splits backwards, but only fused ones are allowed", hint="use --backward any")
