"""Instructions: what a device's stream is made of, and their text.

    2F0   2B0   2W0   2BW0   2F3+5BW1     compute one step
    send 2F0 >1                           start sending the result of 2F0 to device 1
    recv 1F0 <0 [3]                       post the receive of the result of 1F0 from device 0 into buffer slot 3
    wait 1F0                              block until that send or receive is complete
    reduce 2 >3                           sum the gradients of stage 2 with the copy on device 3

A value is named by the operation that makes it: `2F0` the activation that stage 2 sends forward, `2B0` the gradient it
sends backward (whether a B or a BW makes it). Neighbouring sends and receives with the same number after `~` form one
group, which the transport starts as one call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .operation import Operation, Step, parse_step


class Compute(NamedTuple):
    """Execute one step."""

    step: Step

    def __str__(self) -> str:
        return str(self.step)


class Send(NamedTuple):
    """Start sending `value`, made on this device, to device `peer`."""

    value: Operation
    peer: int
    group: int | None = None

    def __str__(self) -> str:
        return f"send {self.value} >{self.peer}" + ("" if self.group is None else f" ~{self.group}")


class Receive(NamedTuple):
    """Post the receive of `value` from device `peer` into a buffer slot.

    Slots are numbered from 0 for each (kind of value, consuming stage) of a device, so all buffers of one pool have
    one shape. A slot is live until the last backward of its micro-batch at the consuming stage.
    """

    value: Operation
    peer: int
    slot: int
    group: int | None = None

    def __str__(self) -> str:
        return f"recv {self.value} <{self.peer} [{self.slot}]" + ("" if self.group is None else f" ~{self.group}")


class Wait(NamedTuple):
    """Block until the send or receive of `value` that this device started is complete."""

    value: Operation

    def __str__(self) -> str:
        return f"wait {self.value}"


class Reduce(NamedTuple):
    """Sum the weight gradients of `stage` with the other copy, on device `peer` (bidirectional placements)."""

    stage: int
    peer: int

    def __str__(self) -> str:
        return f"reduce {self.stage} >{self.peer}"


Instruction: TypeAlias = Compute | Send | Receive | Wait | Reduce
Stream: TypeAlias = tuple[Instruction, ...]
"""What one device executes, in order."""

_COMMUNICATION = re.compile(
    r"(?P<verb>send|recv|wait|reduce) (?:(?P<stage>\d{1,9})(?:(?P<kind>[FB])(?P<microbatch>\d{1,9}))?)"
    r"(?: (?P<way>[<>])(?P<peer>\d{1,9}))?(?: \[(?P<slot>\d{1,9})\])?(?: ~(?P<group>\d{1,9}))?",
    re.ASCII,
)
_FORMS = {  # verb: which of (value, way, slot) it takes
    "send": (True, ">", False),
    "recv": (True, "<", True),
    "wait": (True, None, False),
    "reduce": (False, ">", False),
}


def parse(text: str) -> Instruction:
    """Read one instruction. Raises ValueError when the text is anything else."""
    if " " not in text:
        return Compute(parse_step(text))
    match = _COMMUNICATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an instruction")
    verb, peer, group = match["verb"], match["peer"], match["group"]
    form = (match["kind"] is not None, match["way"], match["slot"] is not None)
    if form != _FORMS[verb] or (group is not None and verb not in ("send", "recv")):
        raise ValueError(f"{text!r} is not a {verb} instruction")
    if verb == "reduce":
        return Reduce(int(match["stage"]), int(peer))
    value = Operation(match["kind"], int(match["stage"]), int(match["microbatch"]))
    number = None if group is None else int(group)
    if verb == "send":
        return Send(value, int(peer), number)
    if verb == "recv":
        return Receive(value, int(peer), int(match["slot"]), number)
    return Wait(value)


def grouped(stream: Stream) -> Iterator[tuple[Instruction, ...]]:
    """The stream with the members of each group taken together; every other instruction alone."""
    group: list[Instruction] = []
    number: int | None = None
    for instruction in stream:
        own = instruction.group if isinstance(instruction, Send | Receive) else None
        if group and own != number:
            yield tuple(group)
            group = []
        number = own
        if own is None:
            yield (instruction,)
        else:
            group.append(instruction)
    if group:
        yield tuple(group)
