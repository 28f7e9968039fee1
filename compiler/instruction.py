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
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

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

_REDUCE = re.compile(r"reduce (\d{1,9}) >(\d{1,9})", re.ASCII)
_OTHER_END = re.compile(r"([<>])(\d{1,9})(?: \[(\d{1,9})\])?(?: ~(\d{1,9}))?", re.ASCII)
_Meaning = TypeVar("_Meaning")


class _Memo(dict[str, _Meaning]):
    """What words mean: each is read when it first occurs."""

    def __init__(self, read: Callable[[str], _Meaning]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, word: str) -> _Meaning:
        meaning = self[word] = self._read(word)
        return meaning


class Reader:
    """Reads the texts of one plan: each name is read once, and stands for one object wherever it occurs."""

    def __init__(self) -> None:
        self._steps = _Memo(parse_step)
        self._other_ends = _Memo(_other_end)

    def step(self, text: str) -> Step:
        """Read one step. Raises ValueError when the text is anything else."""
        return self._steps[text]

    def instruction(self, text: str) -> Instruction:
        """Read one instruction. Raises ValueError when the text is anything else."""
        verb, *words = text.split(" ", 2)
        if not words:
            return Compute(self._steps[verb])
        if verb == "reduce" and (match := _REDUCE.fullmatch(text)):
            return Reduce(int(match[1]), int(match[2]))
        if verb in ("send", "recv", "wait"):
            value = self._steps[words[0]]
            if isinstance(value, Operation) and value.kind in ("F", "B"):
                way, peer, slot, group = self._other_ends[words[1]] if len(words) > 1 else ("", 0, None, None)
                if verb == "wait" and not way:
                    return Wait(value)
                if verb == "send" and way == ">" and slot is None:
                    return Send(value, peer, group)
                if verb == "recv" and way == "<" and slot is not None:
                    return Receive(value, peer, slot, group)
        raise ValueError(f"{text!r} is not an instruction")


def _other_end(text: str) -> tuple[str, int, int | None, int | None]:
    """The way, the peer, the slot and the group of a transfer."""
    match = _OTHER_END.fullmatch(text)
    if match is None:
        return "?", 0, None, None
    way, peer, slot, group = match.groups()
    return way, int(peer), None if slot is None else int(slot), None if group is None else int(group)


def parse(text: str) -> Instruction:
    """Read one instruction. Raises ValueError when the text is anything else."""
    return Reader().instruction(text)


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
