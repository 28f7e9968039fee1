"""Lowering: from one order per device to one instruction stream per device.

Communication is inserted as a pass over the orders. All transfers get one global order, by the planned end of the
operation that makes the value; every device starts its sends and posts its receives in that order. So the first
transfer that is not complete can always proceed: no stream deadlocks, whatever the times turn out to be, even when
every send blocks until its receive is posted. Per device pair both sides agree on the order by construction.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from .instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait
from .operation import Operation, Step, parts
from .problem import Problem
from .schedule import Schedule
from .simulation import inputs, simulate


@dataclass(frozen=True)
class Transfer:
    """A value that crosses devices: made by step `made` = (device, index) and needed by step `used`."""

    value: Operation
    made: tuple[int, int]
    used: tuple[int, int]


def lower(problem: Problem, schedule: Schedule) -> tuple[Stream, ...]:
    """The instruction stream of each device. The schedule must be valid; raises DebubbleError when it deadlocks."""
    execution = simulate(problem, schedule).execution
    ends = execution.ends
    rank = {step: position for position, step in enumerate(execution.sequence)}
    sequence = sorted(execution.sequence, key=lambda step: (ends[step[0]][step[1]], rank[step]))
    outgoing = _transfers(problem, schedule)
    exchanged = _exchanges(problem, sequence, execution.starts, ends, outgoing)
    streams: list[list[Instruction]] = [[] for _ in schedule.orders]
    incoming: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    slots = _Slots()
    sends = _SendWaits()

    def emit(transfer: Transfer, group: int | None) -> None:
        source, target = transfer.made[0], transfer.used[0]
        streams[source].append(Send(transfer.value, target, group))
        sends.start(transfer)
        streams[target].append(Receive(transfer.value, source, slots.take(transfer), group))
        incoming[transfer.used].append(transfer.value)

    moved = set(exchanged.values())
    origin = {transfer.value: transfer for made in outgoing.values() for transfer in made}
    for number, step in enumerate(sequence):
        device, index = step
        stream = streams[device]
        for value in incoming.pop(step, ()):
            stream.append(Wait(value))
            stream.extend(Wait(sent) for sent in sends.finished(origin[value]))
        stream.append(Compute(schedule.orders[device][index]))
        slots.release(device, schedule.orders[device][index])
        for transfer in outgoing.get(step, ()):
            if transfer in exchanged:
                emit(exchanged[transfer], number)
                emit(transfer, number)
            elif transfer not in moved:
                emit(transfer, None)
    for device, stream in enumerate(streams):
        stream.extend(Wait(sent) for sent in sends.unfinished(device))
        stream.extend(_reductions(problem, device))
    return tuple(map(tuple, streams))


def _transfers(problem: Problem, schedule: Schedule) -> dict[tuple[int, int], list[Transfer]]:
    """By the step that makes it, every value that another device needs."""
    made = schedule.makers()
    outgoing: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    for device, order in enumerate(schedule.orders):
        for index, step in enumerate(order):
            for operation in parts(step):
                for value in inputs(operation, problem.stages):
                    source = made[value]
                    if source[0] != device:
                        outgoing[source].append(Transfer(value, source, (device, index)))
    return outgoing


def _exchanges(
    problem: Problem,
    sequence: list[tuple[int, int]],
    starts: list[list[float]],
    ends: list[list[float]],
    outgoing: dict[tuple[int, int], list[Transfer]],
) -> dict[Transfer, Transfer]:
    """Pairs of opposite transfers that both sides can start as one group: {later: earlier}.

    The earlier one is moved to just before the later one in the global order. That is done only where it costs no
    planned time: its sender has nothing to compute in between, and its receiver needs it no sooner.
    """
    exchanged: dict[Transfer, Transfer] = {}
    taken: set[Transfer] = set()
    last: dict[int, tuple[int, int]] = {}
    for later_step in sequence:
        device, index = later_step
        last[device] = later_step
        end = ends[device][index]
        slack = 1e-9 * abs(end)
        for later in outgoing.get(later_step, ()):
            peer = later.used[0]
            earlier_step = last.get(peer)
            if earlier_step is None:
                continue
            following = earlier_step[1] + 1
            if following < len(starts[peer]) and starts[peer][following] < end - slack:
                continue
            for earlier in outgoing.get(earlier_step, ()):
                if earlier.used[0] != device or earlier.used[1] <= index or earlier in taken:
                    continue
                boundary = earlier.value.stage if earlier.value.kind == "F" else earlier.value.stage - 1
                transfer = problem.transfer(peer, device, boundary, earlier.value.microbatch)
                if starts[device][earlier.used[1]] >= end + transfer - slack:
                    exchanged[later] = earlier
                    taken.update((earlier, later))
                    break
    return exchanged


class _Slots:
    """Receive buffers: a slot is taken when the receive is posted and free after the micro-batch's last backward."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        self._used: dict[tuple[int, str, int], int] = defaultdict(int)
        self._held: dict[tuple[int, int, int], list[tuple[str, int]]] = defaultdict(list)

    def take(self, transfer: Transfer) -> int:
        kind, stage, microbatch = transfer.value
        device = transfer.used[0]
        consumer = stage + 1 if kind == "F" else stage - 1
        pool = (device, kind, consumer)
        if self._free[pool]:
            slot = heapq.heappop(self._free[pool])
        else:
            slot = self._used[pool]
            self._used[pool] += 1
        self._held[device, consumer, microbatch].append((kind, slot))
        return slot

    def release(self, device: int, step: Step) -> None:
        for kind, stage, microbatch in parts(step):
            if kind in ("W", "BW"):
                for value, slot in self._held.pop((device, stage, microbatch), ()):
                    heapq.heappush(self._free[device, value, stage], slot)


class _SendWaits:
    """Where a sender can wait for a send at no cost.

    When something arrives that its peer made after it had used the sent value, that send is complete. Until then the
    sent tensor is kept; sends that nothing confirms are waited for at the end of the stream.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[tuple[int, Operation]]] = defaultdict(list)

    def start(self, transfer: Transfer) -> None:
        source, (target, index) = transfer.made[0], transfer.used
        heapq.heappush(self._open[source, target], (index, transfer.value))

    def finished(self, received: Transfer) -> list[Operation]:
        """The sends that the arrival of `received` proves complete."""
        peer, index = received.made
        sent = self._open[received.used[0], peer]
        done = []
        while sent and sent[0][0] <= index:
            done.append(heapq.heappop(sent)[1])
        return done

    def unfinished(self, device: int) -> list[Operation]:
        channels = [sent for (source, _), sent in sorted(self._open.items()) if source == device]
        return [value for sent in channels for _, value in sorted(sent)]


def _reductions(problem: Problem, device: int) -> list[Instruction]:
    """In a bidirectional placement, the gradient sums of every stage that two devices hold."""
    placement = problem.placement
    if placement.up is None:
        return []
    reductions: list[Instruction] = []
    for stage in placement.copies[device]:
        owners = {placement.down[stage], placement.up[stage]}
        reductions.extend(Reduce(stage, peer) for peer in owners - {device})
    return reductions
