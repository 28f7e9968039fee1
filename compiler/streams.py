"""Verification of instruction streams by abstract execution: values are names, time does not exist.

A send waits until its receive is posted when `transfers` is "rendezvous", and never when it is "buffered"; a receive
is posted without waiting; the members of a group start together. Per ordered device pair the k-th receive gets what
the k-th send sends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .diagnostic import Report
from .errors import InputError
from .instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait, grouped
from .operation import Operation, parts
from .problem import Problem
from .simulation import inputs

TRANSFERS = ("rendezvous", "buffered")
_Channel = tuple[int, int]


def verify_streams(problem: Problem, streams: Sequence[Stream], *, transfers: str = "rendezvous") -> Report:
    """Check that the streams of all devices can run to their end and that every value arrives where it is used."""
    if transfers not in TRANSFERS:
        raise InputError(f"unknown transfers {transfers!r}", hint=f"one of {', '.join(TRANSFERS)}")
    report = Report()
    if len(streams) != problem.devices:
        report.error("device-count", f"there are {len(streams)} streams for {problem.devices} devices")
        return report
    for device, stream in enumerate(streams):
        for instruction in stream:
            peer = getattr(instruction, "peer", None)
            if peer is not None and (peer >= problem.devices or peer == device):
                message = f"{instruction}: there is no such peer"
                report.error("bad-peer", message, device=device, operation=instruction)
    if not report.valid:
        return report
    _check_channels(streams, report)
    _check_reductions(problem, streams, report)
    for device, stream in enumerate(streams):
        _check_values(problem, device, stream, report)
    if report.valid:
        _check_progress(streams, report, transfers)
    return report


def _check_channels(streams: Sequence[Stream], report: Report) -> None:
    """On every ordered device pair, receives and sends are the same values in the same order."""
    sent: dict[_Channel, list[Operation]] = defaultdict(list)
    received: dict[_Channel, list[Operation]] = defaultdict(list)
    for device, stream in enumerate(streams):
        for instruction in stream:
            if isinstance(instruction, Send):
                sent[device, instruction.peer].append(instruction.value)
            elif isinstance(instruction, Receive):
                received[instruction.peer, device].append(instruction.value)
    for source, target in sorted(sent.keys() | received.keys()):
        out, into = sent[source, target], received[source, target]
        unreceived, unsent = set(out) - set(into), set(into) - set(out)
        for value in sorted(unreceived):
            message = f"{value} is sent to device {target}, which never receives it"
            report.error("unmatched-send", message, device=source, operation=value)
        for value in sorted(unsent):
            message = f"{value} is received from device {source}, which never sends it"
            report.error("unmatched-receive", message, device=target, operation=value)
        if unreceived or unsent:
            continue
        for number, (value, expected) in enumerate(zip(out, into, strict=False)):
            if value != expected:
                message = (
                    f"message {number} from device {source} carries {value}, but device {target} receives it as "
                    f"{expected}: both sides must use one order"
                )
                report.error("channel-order", message, device=target, operation=expected)
                break
        else:
            if len(out) != len(into):
                message = f"{len(out)} messages are sent to device {target}, which receives {len(into)}"
                report.error("channel-count", message, device=source)


def _check_reductions(problem: Problem, streams: Sequence[Stream], report: Report) -> None:
    """Where a stage has two copies, both reduce its gradient once, in one order, after its last weight gradient."""
    placement = problem.placement
    for device, stream in enumerate(streams):
        found = [instruction for instruction in stream if isinstance(instruction, Reduce)]
        expected = set()
        if placement.up is not None:
            for stage in placement.copies[device]:
                expected |= {(stage, peer) for peer in (placement.down[stage], placement.up[stage]) if peer != device}
        for stage, peer in sorted(expected - {(r.stage, r.peer) for r in found}):
            message = f"the gradient of stage {stage} is never summed with its copy on device {peer}"
            report.error("missing-reduce", message, device=device)
        seen = set()
        for reduce in found:
            if (reduce.stage, reduce.peer) not in expected or reduce in seen:
                message = f"{reduce}: there is no copy left to sum with"
                report.error("extra-reduce", message, device=device, operation=reduce)
            seen.add(reduce)
        reduced: set[int] = set()
        for instruction in stream:
            if isinstance(instruction, Reduce):
                reduced.add(instruction.stage)
            elif isinstance(instruction, Compute):
                for operation in parts(instruction.step):
                    if operation.kind in ("W", "BW") and operation.stage in reduced:
                        message = f"{operation} comes after the gradient of stage {operation.stage} is reduced"
                        report.error("early-reduce", message, device=device, operation=operation)


def _check_values(problem: Problem, device: int, stream: Stream, report: Report) -> None:
    """On one device: values exist before they are sent or used, and buffers are not overwritten while live."""
    made: set[Operation] = set()
    executed: set[Operation] = set()
    posted: set[Operation] = set()
    sent: set[Operation] = set()
    arrived: set[Operation] = set()
    slots: dict[tuple[str, int, int], tuple[Operation, int]] = {}
    held: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)

    def error(code: str, instruction: Instruction, text: str) -> None:
        report.error(code, f"{instruction}: {text}", device=device, operation=instruction)

    for instruction in stream:
        if isinstance(instruction, Compute):
            for operation in parts(instruction.step):
                if operation in executed:
                    error("duplicate-operation", instruction, f"{operation} was executed before")
                for need in inputs(operation, problem.stages):
                    if need in made or need in arrived:
                        continue
                    problem_text = "was not waited for" if need in posted else "is neither made here nor received"
                    error("use-before-receive", instruction, f"it needs {need}, which {problem_text}")
            for operation in parts(instruction.step):
                kind, stage, microbatch = operation
                executed.add(operation)
                made.add(Operation("B" if kind == "BW" else kind, stage, microbatch))
                if kind in ("W", "BW"):
                    for key in held.pop((stage, microbatch), ()):
                        slots.pop(key, None)
        elif isinstance(instruction, Send):
            if instruction.value not in made:
                error("send-before-value", instruction, "the value does not exist yet")
            if instruction.value in sent:
                error("duplicate-send", instruction, "the value was sent before")
            sent.add(instruction.value)
        elif isinstance(instruction, Receive):
            kind, stage, microbatch = instruction.value
            consumer = stage + 1 if kind == "F" else stage - 1
            key = (kind, consumer, instruction.slot)
            if key in slots:
                error("slot-overwritten", instruction, f"slot {instruction.slot} still holds {slots[key][0]}")
            if instruction.value in posted:
                error("duplicate-receive", instruction, "the value was received before")
            slots[key] = (instruction.value, instruction.slot)
            held[consumer, microbatch].append(key)
            posted.add(instruction.value)
        elif isinstance(instruction, Wait):
            if instruction.value in posted:
                arrived.add(instruction.value)
            elif instruction.value not in sent:
                error("wait-for-nothing", instruction, "no send or receive of it was started")
    for value in sorted(posted - arrived):
        report.error("never-waited", f"{value} is received but never waited for", device=device, operation=value)


def _check_progress(streams: Sequence[Stream], report: Report, transfers: str) -> None:
    """Run all streams together until each ends or all that are left wait for each other."""
    blocks = [list(grouped(stream)) for stream in streams]
    position = [0] * len(streams)
    sends: dict[Operation, int] = {}  # by value, for receives to complete
    receives: set[tuple[Operation, int]] = set()
    entered: list[int] = [-1] * len(streams)
    reducing: dict[tuple[int, int], int] = defaultdict(int)

    def obstacle(device: int) -> tuple[str, int] | None:
        """Why the next block of a device cannot complete, and the device it waits for."""
        for instruction in blocks[device][position[device]]:
            if isinstance(instruction, Send) and transfers == "rendezvous":
                if (instruction.value, instruction.peer) not in receives:
                    return f"{instruction} until device {instruction.peer} posts its receive", instruction.peer
            elif isinstance(instruction, Wait):
                if (instruction.value, device) in receives and instruction.value not in sends:
                    return f"{instruction} until it is sent", sources[instruction.value]
            elif isinstance(instruction, Reduce) and reducing[instruction.stage, instruction.peer] == 0:
                return f"{instruction} until device {instruction.peer} joins", instruction.peer
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
                waiters[blocked[1]].append(device)
                break
            position[device] += 1
            progressed = True
        if progressed:
            runnable.extend(waiters.pop(device, ()))
    stuck = [d for d in range(len(streams)) if position[d] < len(blocks[d])]
    if stuck:
        reasons = [(d, obstacle(d)) for d in stuck]
        text = "; ".join(f"device {d} is stuck at {reason[0]}" for d, reason in reasons if reason is not None)
        report.error("stall", f"with {transfers} transfers the streams stall: {text}", device=stuck[0])
