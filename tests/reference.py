"""A reference execution of schedules, independent of the package: tagged values, real queues, nothing checked ahead.

Every device is a program of tuples. A value is the hash of everything that went into it, so two executions agree only
when each operation received the same inputs. Buffers are real: a receive posted into a buffer destroys what was in it,
and operations read their inputs from the buffers each time they need them.

    ("do", [(kind, stage, microbatch), ...])     compute
    ("send", kind, stage, microbatch, peer)      the value made by F or B of this stage
    ("recv", kind, stage, microbatch, peer, slot)
    ("wait", kind, stage, microbatch)
    ("reduce", stage, peer or None)
    ("group", [sends and receives])              started together
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

Operation = tuple[str, int, int]
Program = list[list[tuple[Any, ...]]]


class Broken(Exception):
    """The execution cannot go on, or reads something that is not there."""


class Machine:
    """Devices that execute their programs until all end or none can go on.

    `owner(stage, microbatch)` is the device that has the weights. With `direct`, values need no communication: an
    operation waits until its inputs exist on whichever device makes them. With `losses_by_arrival`, the backward of
    micro-batch j starts from the j-th loss that the last stage made, as torch's does.
    """

    def __init__(
        self,
        program: Program,
        stages: int,
        owner: Callable[[int, int], int],
        *,
        direct: bool = False,
        buffered: bool = False,
        losses_by_arrival: bool = False,
    ) -> None:
        self.program, self.stages, self.owner, self.direct, self.buffered = program, stages, owner, direct, buffered
        self.losses_by_arrival = losses_by_arrival
        self.losses: list[int] = []
        devices = range(len(program))
        self.position = [0 for _ in devices]
        self.entered = [False for _ in devices]
        self.events: Counter[Any] = Counter()
        self.made: list[dict[Operation, int]] = [{} for _ in devices]
        self.saved: list[dict[tuple[int, int], Operation | None]] = [{} for _ in devices]
        self.upstream: list[dict[tuple[int, int], Any]] = [{} for _ in devices]
        self.gradients: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        self.buffers: list[dict[Any, int | None]] = [{} for _ in devices]
        self.bound: list[dict[Operation, Any]] = [{} for _ in devices]
        self.ready: list[set[Operation]] = [set() for _ in devices]
        self.started: list[set[Operation]] = [set() for _ in devices]
        self.sent: dict[tuple[int, int], list[tuple[Operation, int]]] = defaultdict(list)
        self.posted: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.reduced: dict[tuple[int, int], int] = defaultdict(int)
        self.reductions: list[Any] = []

    def run(self) -> Any:
        """What happened, as something that compares equal only when everything received the same values."""
        moved = True
        while moved:
            moved = False
            for device in range(len(self.program)):
                while self.position[device] < len(self.program[device]) and self._step(device):
                    self.position[device] += 1
                    self.entered[device] = False
                    moved = True
        if any(at < len(program) for at, program in zip(self.position, self.program, strict=True)):
            raise Broken("stall")
        gradients = {key: frozenset(found.items()) for key, found in self.gradients.items()}
        return frozenset(self.events.items()), gradients, frozenset(Counter(self.reductions).items())

    def _step(self, device: int) -> bool:
        """Execute one instruction; False when it has to wait (what it has started stays started)."""
        verb, *rest = self.program[device][self.position[device]]
        if verb == "do":
            if self.direct and not all(self._available(device, operation) for operation in rest[0]):
                return False
            for operation in rest[0]:
                self._compute(device, operation)
            return True
        members = rest[0] if verb == "group" else [(verb, *rest)]
        if not self.entered[device]:
            self.entered[device] = True
            for member in members:
                self._start(device, *member)
        return all(self._finished(device, *member) for member in members)

    def _start(self, device: int, verb: str, *rest: Any) -> None:
        if verb == "send":
            kind, stage, microbatch, peer = rest
            if (kind, stage, microbatch) not in self.made[device]:
                raise Broken("sends what it does not have")
            self.started[device].add((kind, stage, microbatch))
            channel = self.sent[device, peer]
            channel.append(((kind, stage, microbatch), self.made[device][kind, stage, microbatch]))
            self._deliver(device, peer, len(channel) - 1)
        elif verb == "recv":
            kind, stage, microbatch, peer, slot = rest
            key = (kind, stage, slot)
            self.buffers[device][key] = None
            self.bound[device][kind, stage, microbatch] = key
            self.ready[device].discard((kind, stage, microbatch))
            self.started[device].add((kind, stage, microbatch))
            channel = self.posted[peer, device]
            channel.append((kind, stage, microbatch))
            self._deliver(peer, device, len(channel) - 1)
        elif verb == "wait":
            if tuple(rest) not in self.started[device]:
                raise Broken("waits for nothing")
        elif verb == "reduce":
            self.reduced[rest[0], device] += 1

    def _deliver(self, source: int, target: int, number: int) -> None:
        """The k-th receive of a channel gets what the k-th send sends, which is what both sides have to mean."""
        sent, posted = self.sent[source, target], self.posted[source, target]
        if number < len(sent) and number < len(posted):
            name, value = sent[number]
            if name != posted[number]:
                raise Broken("receives another value than it names")
            self.buffers[target][self.bound[target][name]] = value

    def _finished(self, device: int, verb: str, *rest: Any) -> bool:
        if verb == "send":
            peer = rest[-1]
            return self.buffered or len(self.posted[device, peer]) >= len(self.sent[device, peer])
        if verb == "wait":
            value = tuple(rest)
            if value in self.bound[device]:
                if self.buffers[device][self.bound[device][value]] is None:
                    return False
                self.ready[device].add(value)
            return True
        if verb == "reduce":
            stage, peer = rest
            if peer is not None and self.reduced[stage, peer] < self.reduced[stage, device]:
                return False
            own = frozenset(self.gradients[device, stage].items())
            self.reductions.append((device, stage, peer, self.reduced[stage, device], own))
        return True

    def _available(self, device: int, operation: Operation) -> bool:
        kind, stage, microbatch = operation
        if kind == "F":
            needs = [("F", stage - 1, microbatch)] if stage else []
        elif kind == "W":
            needs = []
        else:
            needs = [("B", stage + 1, microbatch)] if stage + 1 < self.stages else []
        return all(need in made for need in needs for made in [self.made[self.owner(need[1], microbatch)]])

    def _input(self, device: int, value: Operation) -> int:
        """Read a value where it lies: made here, or in the buffer it was received into."""
        source = self.owner(value[1], value[2])
        if self.direct or source == device:
            if value not in self.made[source]:
                raise Broken("reads what does not exist")
            return self.made[source][value]
        if value not in self.ready[device]:
            raise Broken("reads before it has arrived")
        content = self.buffers[device][self.bound[device][value]]
        if content is None:
            raise Broken("reads a buffer that is being overwritten")
        return content

    def _compute(self, device: int, operation: Operation) -> None:
        kind, stage, microbatch = operation
        if self.owner(stage, microbatch) != device:
            raise Broken("has no weights of this stage")
        key = (stage, microbatch)
        if kind == "F":
            self.saved[device][key] = ("F", stage - 1, microbatch) if stage else None
        elif key not in self.saved[device]:
            raise Broken("backward without its forward")
        before = self.saved[device][key]
        activation = self._input(device, before) if before else hash(("input", microbatch))
        if kind == "F":
            result = hash(("F", stage, microbatch, activation))
            self.made[device]["F", stage, microbatch] = result
            self.events["F", stage, microbatch, result] += 1
            if stage + 1 == self.stages:
                self.losses.append(hash(("loss", result)))
            return
        if kind in ("B", "BW"):
            if stage + 1 < self.stages:
                self.upstream[device][key] = ("B", stage + 1, microbatch)
            elif self.losses_by_arrival:
                if microbatch >= len(self.losses):
                    raise Broken("has no loss")
                self.upstream[device][key] = self.losses[microbatch]
            else:
                self.upstream[device][key] = hash(("loss", self.made[device]["F", stage, microbatch]))
        elif key not in self.upstream[device]:
            raise Broken("weight gradient without its input gradient")
        after = self.upstream[device][key]
        gradient = self._input(device, after) if isinstance(after, tuple) else after
        if kind in ("B", "BW"):
            result = hash(("B", stage, microbatch, activation, gradient))
            self.made[device]["B", stage, microbatch] = result
            self.events["B", stage, microbatch, result] += 1
        if kind in ("W", "BW"):
            self.gradients[device, stage][hash(("W", stage, microbatch, activation, gradient))] += 1
            del self.saved[device][key], self.upstream[device][key]


def program_of_orders(orders: Sequence[Sequence[str]]) -> Program:
    """Orders of tokens such as 2F0 or 2F3+2BW1."""
    return [[("do", [_operation(part) for part in token.split("+")]) for token in order] for order in orders]


def program_of_streams(streams: Sequence[Sequence[str]]) -> Program:
    """The instruction streams of a plan, as it writes them."""
    program: Program = []
    for stream in streams:
        instructions: list[tuple[Any, ...]] = []
        last = None
        for text in stream:
            verb, *words = text.split()
            group = words.pop() if words and words[-1][0] == "~" else None
            if not words:
                instruction: tuple[Any, ...] = ("do", [_operation(part) for part in verb.split("+")])
            elif verb == "reduce":
                instruction = ("reduce", int(words[0]), int(words[1][1:]))
            else:
                value = _operation(words[0])
                numbers = [int(re.sub(r"\D", "", word)) for word in words[1:]]
                instruction = (verb, *value, *numbers)
            if group is not None and group == last:
                instructions[-1][1].append(instruction)
            else:
                instructions.append(("group", [instruction]) if group is not None else instruction)
            last = group
        program.append(instructions)
    return program


def program_of_torch(rows: Sequence[Sequence[str]], owner: Callable[[int, int], int]) -> Program:
    """The rows of a torch CSV with communication, in today's letters; a computation waits for what it receives."""
    program: Program = []
    for row in rows:
        instructions: list[tuple[Any, ...]] = []
        posted: set[Operation] = set()
        for token in row:
            pair = re.fullmatch(r"\((.*);(.*)\)OVERLAP_F_B", token)
            match = re.fullmatch(r"(\d+)([A-Z_]+?)(\d*)", token)
            if pair or (match and match[2] in ("F", "I", "W", "B")):
                operations = [_torch_operation(half) for half in (pair.groups() if pair else (token,))]
                for kind, stage, microbatch in operations:
                    for value in (("F", stage - 1, microbatch), ("B", stage + 1, microbatch)):
                        if value in posted and (kind == "F") == (value[0] == "F") and kind != "W":
                            instructions.append(("wait", *value))
                            posted.discard(value)
                instructions.append(("do", operations))
                continue
            if match is None:
                raise Broken("unreadable")
            stage, verb = int(match[1]), match[2]
            if verb == "REDUCE_GRAD":
                instructions.append(("reduce", stage, None))
            elif verb in ("SEND_F", "SEND_B", "RECV_F", "RECV_B"):
                microbatch, kind = int(match[3]), verb[-1]
                other = stage + (1 if verb in ("SEND_F", "RECV_B") else -1)
                peer = owner(other, microbatch)
                if verb.startswith("SEND"):
                    instructions.append(("send", kind, stage, microbatch, peer))
                else:
                    instructions.append(("recv", kind, other, microbatch, peer, microbatch))
                    posted.add((kind, other, microbatch))
        program.append(instructions)
    return program


def _operation(text: str) -> Operation:
    match = re.fullmatch(r"(\d+)(F|BW|B|W)(\d+)", text)
    if match is None:
        raise Broken("unreadable")
    return match[2], int(match[1]), int(match[3])


def _torch_operation(text: str) -> Operation:
    match = re.fullmatch(r"(\d+)([FIWB])(\d+)", text)
    if match is None:
        raise Broken("unreadable")
    return {"F": "F", "I": "B", "W": "W", "B": "BW"}[match[2]], int(match[1]), int(match[3])


def peak(operations: Sequence[Sequence[Operation]], changes: dict[str, float]) -> float:
    """The most a device holds: increases from the start of a step, decreases from its end, forwards first."""
    held = top = 0.0
    for step in operations:
        for sign in (1, -1):
            for kind, _, _ in step:
                change = changes["B"] + changes["W"] if kind == "BW" else changes[kind]
                if change * sign > 0:
                    held += change
                    top = max(top, held)
    return top
