"""Progress: where a rank is, as two numbers that another process can read, and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..compiler.instruction import Compute, Receive, Send, Wait
from ..compiler.operation import parts
from ..compiler.plan import Plan


class Progress(Protocol):
    """At 0 the step, at 1 the number of the instruction: OUTSIDE between steps, the stream's length after the last."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


OUTSIDE = -1


def describe(plan: Plan, rank: int, step: int, number: int) -> str:
    """Where a rank is: its step, instruction, micro-batch, and whom it waits for."""
    stream = plan.streams[rank]
    if number == OUTSIDE:
        return f"rank {rank}, before step {step}"
    if number >= len(stream):
        return f"rank {rank}, step {step}, summing the loss after the last instruction"
    instruction = stream[number]
    words = [f"rank {rank}, step {step}, instruction {number} of {len(stream)}, {instruction}"]
    operations = parts(instruction.step) if isinstance(instruction, Compute) else ()
    value = getattr(instruction, "value", None)
    if value is not None:
        operations = (value,)
    if operations:
        words.append(f"micro-batch {' and '.join(str(operation.microbatch) for operation in operations)}")
    if isinstance(instruction, Wait):
        words.append(f"the transfer with rank {_peer(plan, rank, instruction)}")
    return words[0] + (f" ({', '.join(words[1:])})" if words[1:] else "")


def waits(plan: Plan, rank: int, number: int) -> bool:
    """Whether a rank that stays at this place waits for another one."""
    stream = plan.streams[rank]
    return number >= len(stream) or (number != OUTSIDE and isinstance(stream[number], Wait))


def _peer(plan: Plan, rank: int, wait: Wait) -> int | None:
    transfers = (i for i in plan.streams[rank] if isinstance(i, Send | Receive))
    return next((transfer.peer for transfer in transfers if transfer.value == wait.value), None)


def create(path: Path) -> None:
    """Make the file that one rank's progress is shared through."""
    path.write_bytes(b"".join(number.to_bytes(8, "little", signed=True) for number in (0, OUTSIDE)))


def read(path: Path) -> tuple[int, int]:
    """(step, number) as the rank wrote them last."""
    content = path.read_bytes()
    step, number = (int.from_bytes(content[start : start + 8], "little", signed=True) for start in (0, 8))
    return step, number
