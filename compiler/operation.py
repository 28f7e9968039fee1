"""Operations: what one stage does with one micro-batch."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

KINDS = ("F", "B", "W", "BW")
LONG_NAMES = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}


class Operation(NamedTuple):
    """One pass of `stage` over `microbatch`: F forward, B input gradient, W weight gradient, BW fused backward."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Pair(NamedTuple):
    """An overlapped pair: a forward and a backward of different micro-batches, run as one operation."""

    forward: Operation
    backward: Operation

    def __str__(self) -> str:
        return f"{self.forward}+{self.backward}"


Step: TypeAlias = Operation | Pair
"""One entry of a device's order."""


def parts(step: Step) -> tuple[Operation, ...]:
    """The operations inside one step: itself, or the two of a pair (forward first)."""
    return (step,) if isinstance(step, Operation) else (step.forward, step.backward)


_TOKEN = re.compile(r"(\d{1,9})(F|BW|B|W)(\d{1,9})", re.ASCII)


def parse_operation(token: str) -> Operation:
    """Read `2F0`. Raises ValueError when the token is anything else."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"{token!r} is not an operation such as 2F0, 2B0, 2W0 or 2BW0")
    return Operation(match[2], int(match[1]), int(match[3]))


def parse_step(token: str) -> Step:
    """Read `2F0` or the overlapped pair `2F3+2BW1`. Raises ValueError when the token is anything else."""
    first, plus, second = token.partition("+")
    if not plus:
        return parse_operation(token)
    pair = Pair(parse_operation(first), parse_operation(second))
    if pair.forward.kind != "F" or pair.backward.kind not in ("B", "BW"):
        raise ValueError(f"{token!r}: a pair is a forward, then a backward, as in 2F3+2BW1")
    return pair
