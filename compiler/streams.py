"""Verification of instruction streams by abstract execution: values are names, time does not exist.

A send waits until its receive is posted when `transfers` is "rendezvous", and never when it is "buffered"; a receive
is posted without waiting; the members of a group start together. Per ordered device pair the k-th receive gets what
the k-th send sends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import zip_longest

from .diagnostic import Report
from .errors import InputError
from .instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait, grouped
from .operation import Operation, parts
from .problem import Problem
from .simulation import inputs

TRANSFERS = ("rendezvous", "buffered")
_MOST_NAMES = 12
_Channel = tuple[int, int]
_Spell = Callable[[Instruction], str]


def verify_streams(
    problem: Problem, streams: Sequence[Stream], *, transfers: str = "rendezvous", spell: _Spell = str
) -> Report:
    """Check that the streams of all devices can run to their end and that every value arrives where it is used.

    `spell` writes an instruction the way its reader knows it. Raises InputError when there is no such `transfers`.
    """
    if transfers not in TRANSFERS:
        raise InputError(f"unknown transfers {transfers!r}", hint=f"one of {', '.join(TRANSFERS)}")
    report = Report()
    if len(streams) != problem.devices:
        report.error("device-count", f"there are {len(streams)} streams for {problem.devices} devices")
        return report
    for device, stream in enumerate(streams):
        for index, instruction in enumerate(stream):
            peer = getattr(instruction, "peer", None)
            if peer is not None and (peer >= problem.devices or peer == device):
                message = f"{spell(instruction)}: there is no such peer"
                report.error("bad-peer", message, device=device, operation=spell(instruction), index=index)
    if not report.valid:
        return report
    _check_channels(streams, report, spell)
    _check_reductions(problem, streams, report)
    for device, stream in enumerate(streams):
        _Values(problem, device, stream, report, spell).check()
    if report.valid:
        _check_progress(streams, report, transfers, spell)
    return report


def name_value(value: Operation) -> str:
    """A value in words: an operation's own name says what makes it, which for a gradient is a B or a BW."""
    what = "activation" if value.kind == "F" else "gradient"
    return f"the {what} of stage {value.stage}, micro-batch {value.microbatch}"


def _check_channels(streams: Sequence[Stream], report: Report, spell: _Spell) -> None:
    """On every ordered device pair, receives and sends are the same values in the same order."""
    sent: dict[_Channel, list[int]] = defaultdict(list)
    received: dict[_Channel, list[int]] = defaultdict(list)
    for device, stream in enumerate(streams):
        for index, instruction in enumerate(stream):
            if isinstance(instruction, Send):
                sent[device, instruction.peer].append(index)
            elif isinstance(instruction, Receive):
                received[instruction.peer, device].append(index)
    for source, target in sorted(sent.keys() | received.keys()):
        out = [(streams[source][index], index) for index in sent[source, target]]
        into = [(streams[target][index], index) for index in received[source, target]]
        _check_channel(source, target, out, into, report, spell)  # type: ignore[arg-type]


def _check_channel(
    source: int,
    target: int,
    out: list[tuple[Send, int]],
    into: list[tuple[Receive, int]],
    report: Report,
    spell: _Spell,
) -> None:
    values, expected = [send.value for send, _ in out], [receive.value for receive, _ in into]
    if values == expected:
        return
    unreceived, unsent = set(values) - set(expected), set(expected) - set(values)
    for send, index in out:
        if send.value in unreceived:
            message = f"{spell(send)}: device {target} never receives {name_value(send.value)}"
            report.error("unmatched-send", message, device=source, operation=spell(send), index=index)
    for receive, index in into:
        if receive.value in unsent:
            message = f"{spell(receive)}: device {source} never sends {name_value(receive.value)}"
            report.error("unmatched-receive", message, device=target, operation=spell(receive), index=index)
    if unreceived or unsent:
        return
    for number, (one, other) in enumerate(zip_longest(out, into)):
        if one is None or other is None:
            message = f"device {source} sends {len(out)} messages to device {target}, which receives {len(into)}"
            report.error("channel-count", message, device=source)
        elif one[0].value != other[0].value:
            message = (
                f"{spell(other[0])} takes what {spell(one[0])} of device {source} sends: transfers between two devices "
                f"are matched by order alone, and message {number} on this way is sent as {name_value(one[0].value)}"
            )
            report.error("channel-order", message, device=target, operation=spell(other[0]), index=other[1])
            return


def _check_reductions(problem: Problem, streams: Sequence[Stream], report: Report) -> None:
    """Where a stage has two copies, both reduce its gradient once, in one order, after its last weight gradient."""
    placement = problem.placement
    for device, stream in enumerate(streams):
        found = {i: instruction for i, instruction in enumerate(stream) if isinstance(instruction, Reduce)}
        expected = set()
        if placement.up is not None:
            for stage in placement.copies[device]:
                expected |= {(stage, peer) for peer in (placement.down[stage], placement.up[stage]) if peer != device}
        for stage, peer in sorted(expected - {(reduce.stage, reduce.peer) for reduce in found.values()}):
            message = f"the gradient of stage {stage} is never summed with its copy on device {peer}"
            report.error("missing-reduce", message, device=device)
        seen = set()
        for index, reduce in found.items():
            if (reduce.stage, reduce.peer) not in expected or reduce in seen:
                message = f"{reduce}: there is no copy left to sum with"
                report.error("extra-reduce", message, device=device, operation=reduce, index=index)
            seen.add(reduce)
        if not found:
            continue
        reduced: set[int] = set()
        for index, instruction in enumerate(stream):
            if isinstance(instruction, Reduce):
                reduced.add(instruction.stage)
            elif isinstance(instruction, Compute):
                for operation in parts(instruction.step):
                    if operation.kind in ("W", "BW") and operation.stage in reduced:
                        message = f"{operation} comes after the gradient of stage {operation.stage} is reduced"
                        report.error("early-reduce", message, device=device, operation=operation, index=index)


class _Values:
    """One device: values exist before they are sent or used, and buffers are not overwritten while live."""

    def __init__(self, problem: Problem, device: int, stream: Stream, report: Report, spell: _Spell) -> None:
        self.stages, self.device, self.stream, self.report, self.spell = problem.stages, device, stream, report, spell
        self.index = 0
        self.executed: set[Operation] = set()
        self.here: set[Operation] = set()  # made on this device, or received and waited for
        self.posted: set[Operation] = set()
        self.sent: set[Operation] = set()
        self.waited: set[Operation] = set()
        self.slots: dict[tuple[str, int, int], Operation] = {}
        self.held: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)

    def check(self) -> None:
        steps = {Compute: self._compute, Send: self._send, Receive: self._receive, Wait: self._wait}
        for index, instruction in enumerate(self.stream):
            step = steps.get(type(instruction))
            if step is not None:
                self.index = index
                step(instruction)  # type: ignore[operator]
        for index, instruction in enumerate(self.stream):
            if isinstance(instruction, Receive) and instruction.value not in self.waited:
                self.index = index
                self._error("never-waited", instruction, "it is received but nothing on this device waits for it")

    def _error(self, code: str, instruction: Instruction, text: str) -> None:
        name = self.spell(instruction)
        self.report.error(code, f"{name}: {text}", device=self.device, operation=name, index=self.index)

    def _compute(self, instruction: Compute) -> None:
        for operation in parts(instruction.step):
            kind, stage, microbatch = operation
            if operation in self.executed:
                self._error("duplicate-operation", instruction, "it was executed before")
            for need in inputs(operation, self.stages):
                if need not in self.here:
                    how = "was not waited for" if need in self.posted else "is neither made here nor received before"
                    self._error("use-before-receive", instruction, f"it needs {name_value(need)}, which {how}")
            self.executed.add(operation)
            self.here.add(Operation("B", stage, microbatch) if kind == "BW" else operation)
            if kind in ("W", "BW"):
                for key in self.held.pop((stage, microbatch), ()):
                    self.slots.pop(key, None)

    def _send(self, instruction: Send) -> None:
        value = instruction.value
        if value not in self.here or value in self.posted:
            self._error("send-before-value", instruction, f"{name_value(value)} does not exist here yet")
        if value in self.sent:
            self._error("duplicate-send", instruction, f"{name_value(value)} was sent before")
        self.sent.add(value)

    def _receive(self, instruction: Receive) -> None:
        value = instruction.value
        kind, stage, microbatch = value
        consumer = stage + 1 if kind == "F" else stage - 1
        key = (kind, consumer, instruction.slot)
        if key in self.slots:
            text = f"buffer {instruction.slot} still holds {name_value(self.slots[key])}"
            self._error("slot-overwritten", instruction, text)
        if value in self.posted:
            self._error("duplicate-receive", instruction, f"{name_value(value)} was received before")
        self.slots[key] = value
        self.held[consumer, microbatch].append(key)
        self.posted.add(value)

    def _wait(self, instruction: Wait) -> None:
        value = instruction.value
        if value in self.posted:
            self.here.add(value)
            self.waited.add(value)
        elif value not in self.sent:
            self._error("wait-for-nothing", instruction, "no send or receive of it was started")


def _check_progress(streams: Sequence[Stream], report: Report, transfers: str, spell: _Spell) -> None:
    """Run all streams together until each ends or all that are left wait for each other."""
    blocks = [list(grouped(stream)) for stream in streams]
    position = [0] * len(streams)
    sends: dict[Operation, int] = {}  # by value, for receives to complete
    receives: set[tuple[Operation, int]] = set()
    entered: list[int] = [-1] * len(streams)
    reducing: dict[tuple[int, int], int] = defaultdict(int)

    def obstacle(device: int) -> tuple[Instruction, str, int] | None:
        """Why the next block of a device cannot complete, and the device it waits for."""
        for instruction in blocks[device][position[device]]:
            if isinstance(instruction, Send) and transfers == "rendezvous":
                if (instruction.value, instruction.peer) not in receives:
                    return instruction, f"until device {instruction.peer} posts its receive", instruction.peer
            elif isinstance(instruction, Wait):
                if (instruction.value, device) in receives and instruction.value not in sends:
                    source = sources[instruction.value]
                    return instruction, f"until device {source} sends it", source
            elif isinstance(instruction, Reduce) and reducing[instruction.stage, instruction.peer] == 0:
                return instruction, f"until device {instruction.peer} joins", instruction.peer
        return None

    sources = {i.value: d for d, stream in enumerate(streams) for i in stream if isinstance(i, Send)}
    waiters: dict[int, list[int]] = defaultdict(list)
    runnable = list(range(len(streams)))
    while runnable:
        device = runnable.pop()
        progressed = False
        while position[device] < len(blocks[device]):
            block = blocks[device][position[device]]
            if entered[device] < position[device]:
                entered[device] = position[device]
                for instruction in block:
                    if isinstance(instruction, Receive):
                        receives.add((instruction.value, device))
                    elif isinstance(instruction, Send):
                        sends[instruction.value] = device
                    elif isinstance(instruction, Reduce):
                        reducing[instruction.stage, device] += 1
                progressed = True
            blocked = obstacle(device)
            if blocked is not None:
                waiters[blocked[2]].append(device)
                break
            position[device] += 1
            progressed = True
        if progressed:
            runnable.extend(waiters.pop(device, ()))
    stuck = {d: reason for d in range(len(streams)) if position[d] < len(blocks[d]) and (reason := obstacle(d))}
    if stuck:
        cycle = _cycle({device: peer for device, (_, _, peer) in stuck.items()})
        first = cycle[0]
        links = [f"device {d} is stuck at {spell(stuck[d][0])} {stuck[d][1]}" for d in cycle[:_MOST_NAMES]]
        if len(cycle) > len(links):
            links.append(f"and so on over {len(cycle)} devices, back to device {first}")
        around = sorted(stuck.keys() - set(cycle))
        others = [f"device {d} at {spell(stuck[d][0])}" for d in around[:_MOST_NAMES]]
        others += [f"{len(around) - len(others)} more"] if len(around) > len(others) else []
        report.error(
            "stall",
            f"with {transfers} transfers the streams stall: {'; '.join(links)}"
            + (f" (so also {', '.join(others)})" if others else ""),
            device=first,
            operation=spell(stuck[first][0]),
            index=sum(map(len, blocks[first][: position[first]])),
        )


def _cycle(successor: dict[int, int]) -> list[int]:
    """The shortest cycle that following `successor` ends in, from its smallest device."""
    cycles = []
    done: set[int] = set()
    for start in sorted(successor):
        path: dict[int, int] = {}
        node = start
        while node not in path and node not in done:
            path[node] = len(path)
            node = successor[node]
        if node in path:
            cycles.append(list(path)[path[node] :])
        done.update(path)
    best = min(cycles, key=lambda cycle: (len(cycle), min(cycle)))
    first = best.index(min(best))
    return best[first:] + best[:first]
