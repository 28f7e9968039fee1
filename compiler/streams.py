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
        _check_values(problem, device, stream, report, spell)
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


def _check_values(problem: Problem, device: int, stream: Stream, report: Report, spell: _Spell) -> None:
    """On one device: values exist before they are sent or used, and buffers are not overwritten while live."""
    executed: set[Operation] = set()
    made: set[Operation] = set()
    posted: dict[Operation, int] = {}  # by value, where its receive stands
    arrived: set[Operation] = set()
    sent: set[Operation] = set()
    slots: dict[tuple[str, int, int], Operation] = {}
    held: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)

    def error(code: str, index: int, text: str) -> None:
        name = spell(stream[index])
        report.error(code, f"{name}: {text}", device=device, operation=name, index=index)

    for index, instruction in enumerate(stream):
        if isinstance(instruction, Compute):
            for operation in parts(instruction.step):
                kind, stage, microbatch = operation
                if operation in executed:
                    error("duplicate-operation", index, "it was executed before")
                for need in inputs(operation, problem.stages):
                    if need not in made and need not in arrived:
                        how = "was not waited for" if need in posted else "is neither made here nor received before"
                        error("use-before-receive", index, f"it needs {name_value(need)}, which {how}")
                executed.add(operation)
                made.add(Operation("B", stage, microbatch) if kind == "BW" else operation)
                if kind in ("W", "BW"):
                    for key in held.pop((stage, microbatch), ()):
                        slots.pop(key, None)
        elif isinstance(instruction, Send):
            value = instruction.value
            if value not in made:
                error("send-before-value", index, f"{name_value(value)} does not exist here yet")
            if value in sent:
                error("duplicate-send", index, f"{name_value(value)} was sent before")
            sent.add(value)
        elif isinstance(instruction, Receive):
            value = instruction.value
            consumer = value.stage + 1 if value.kind == "F" else value.stage - 1
            key = (value.kind, consumer, instruction.slot)
            if key in slots:
                error("slot-overwritten", index, f"buffer {instruction.slot} still holds {name_value(slots[key])}")
            if value in posted:
                error("duplicate-receive", index, f"{name_value(value)} was received before")
            slots[key] = value
            held[consumer, value.microbatch].append(key)
            posted[value] = index
        elif isinstance(instruction, Wait):
            if instruction.value in posted:
                arrived.add(instruction.value)
            elif instruction.value not in sent:
                error("wait-for-nothing", index, "no send or receive of it was started")
    for value, index in posted.items():
        if value not in arrived:
            error("never-waited", index, "it is received but nothing on this device waits for it")


class _Progress:
    """Counters that the devices raise and wait for: receives posted and sends started, by channel, and joined sums.

    Each instruction is at most two primitives: it raises a counter, and needs another to have reached a level. The
    members of a group raise all of theirs before any needs anything.
    """

    def __init__(self, streams: Sequence[Stream], transfers: str) -> None:
        self.streams, self.rendezvous = streams, transfers == "rendezvous"
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.programs = [self._program(device, stream) for device, stream in enumerate(streams)]

    def _counter(self, what: str, first: int, second: int) -> int:
        return self.numbers.setdefault((what, first, second), len(self.numbers))

    def _program(self, device: int, stream: Stream) -> list[tuple[int, int, int]]:
        """(counter, level, index) of each primitive; the level is 0 where the counter is raised."""
        program: list[tuple[int, int, int]] = []
        times: dict[int, int] = defaultdict(int)
        awaited: dict[Operation, tuple[int, int]] = {}
        index = 0
        for block in grouped(stream):
            needs = []
            for instruction in block:
                if isinstance(instruction, Send):
                    number = self._counter("sent", device, instruction.peer)
                    program.append((number, 0, index))
                    times[number] += 1
                    if self.rendezvous:
                        needs.append((self._counter("posted", device, instruction.peer), times[number], index))
                elif isinstance(instruction, Receive):
                    number = self._counter("posted", instruction.peer, device)
                    program.append((number, 0, index))
                    times[number] += 1
                    awaited[instruction.value] = self._counter("sent", instruction.peer, device), times[number]
                elif isinstance(instruction, Wait) and instruction.value in awaited:
                    program.append((*awaited[instruction.value], index))
                elif isinstance(instruction, Reduce):
                    program.append((self._counter("joined", device, instruction.stage), 0, index))
                    program.append((self._counter("joined", instruction.peer, instruction.stage), 1, index))
                index += 1
            program += needs
        return program

    def run(self) -> dict[int, tuple[int, str, int]]:
        """Run all streams until each ends or all that are left wait: what each stuck device waits for, and for whom."""
        counts = [0] * len(self.numbers)
        position = [0] * len(self.programs)
        waiting: dict[int, list[int]] = defaultdict(list)
        runnable = list(range(len(self.programs)))
        while runnable:
            device = runnable.pop()
            program, at = self.programs[device], position[device]
            while at < len(program):
                counter, level, _ = program[at]
                if level == 0:
                    counts[counter] += 1
                    if counter in waiting:
                        runnable.extend(waiting.pop(counter))
                elif counts[counter] < level:
                    waiting[counter].append(device)
                    break
                at += 1
            position[device] = at
        names = list(self.numbers)
        return {
            device: (program[at][2], *_reason(names[program[at][0]]))
            for device, (program, at) in enumerate(zip(self.programs, position, strict=True))
            if at < len(program)
        }


def _reason(counter: tuple[str, int, int]) -> tuple[str, int]:
    """What a device waits for that needs this counter, and the device that raises it."""
    what, first, second = counter
    if what == "posted":
        return f"until device {second} posts its receive", second
    return f"until device {first} {'sends it' if what == 'sent' else 'joins'}", first


def _check_progress(streams: Sequence[Stream], report: Report, transfers: str, spell: _Spell) -> None:
    """All streams together come to their end."""
    stuck = _Progress(streams, transfers).run()
    if not stuck:
        return
    cycle = _cycle({device: peer for device, (_, _, peer) in stuck.items()})

    def instruction(device: int) -> str:
        return spell(streams[device][stuck[device][0]])

    links = [f"device {d} is stuck at {instruction(d)} {stuck[d][1]}" for d in cycle[:_MOST_NAMES]]
    if len(cycle) > len(links):
        links.append(f"and so on over {len(cycle)} devices, back to device {cycle[0]}")
    around = sorted(stuck.keys() - set(cycle))
    others = [f"device {device} at {instruction(device)}" for device in around[:_MOST_NAMES]]
    others += [f"{len(around) - len(others)} more"] if len(around) > len(others) else []
    report.error(
        "stall",
        f"with {transfers} transfers the streams stall: {'; '.join(links)}"
        + (f" (so also {', '.join(others)})" if others else ""),
        device=cycle[0],
        operation=instruction(cycle[0]),
        index=stuck[cycle[0]][0],
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
