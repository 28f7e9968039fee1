"""The timeline as a Perfetto trace: a track per device, transfers as flows, memory as counters.

The native format, a `Trace` of `TracePacket`s with track events (https://perfetto.dev/docs/reference/synthetic-track-event),
opens in Perfetto's page and in its trace processor. Field numbers are those of perfetto/trace/*.proto.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..arrival import Arrival, arrivals
from ..operation import Operation, Step, parts
from ..simulation import Timeline
from ..slack import slacks
from .protobuf import double, fixed, message, number, text
from .style import MEANINGS, kind

NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
"""Time units whose names are known; any other unit is drawn as a microsecond."""

_ROOT = 1
_SEQUENCE = number(10, 1)
_BEGIN, _END, _COUNTER = 1, 2, 4
_EXPLICIT = 3


def draw(timeline: Timeline) -> bytes:
    """The trace. Slices are named `F 3` by kind and micro-batch, since Perfetto colours by name without its digits."""
    return b"".join(_packets(timeline))


def _packets(timeline: Timeline) -> Iterator[bytes]:
    problem = timeline.problem
    found = arrivals(timeline)
    slack = slacks(timeline, found)
    scale = NANOSECONDS.get(problem.profile.time_unit, 1e3)
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    sent, received = _flows(found)
    offsets = [0, *itertools.accumulate(map(len, timeline.schedule.orders))]

    def moment(time: float) -> int:
        return round((time - begin) * scale)

    yield _packet(number(13, 1), message(60, number(1, _ROOT), text(2, _title(timeline)), number(11, _EXPLICIT)))
    for device in range(problem.devices):
        yield _packet(_track(_steps_track(device), f"device {device}", 2 * device))
        unit = text(6, problem.profile.memory_unit) if problem.profile.memory_unit else b""
        yield _packet(_track(_memory_track(device), f"memory of device {device}", 2 * device + 1, message(8, unit)))
    for device, order in enumerate(timeline.schedule.orders):
        track = number(11, _steps_track(device))
        for index, (step, start, end) in enumerate(
            zip(order, timeline.starts[device], timeline.ends[device], strict=True)
        ):
            flows = [fixed(47, flow) for flow in sent.get(offsets[device] + index, ())]
            flows += [fixed(48, flow) for flow in received.get(offsets[device] + index, ())]
            notes = _notes(step, slack[device][index])
            yield _event(moment(start), _BEGIN, track, text(23, _name(step)), text(22, kind(step)), *flows, *notes)
            yield _event(moment(end), _END, track)
        track = number(11, _memory_track(device))
        for time, level in timeline.memory_curve(device):
            yield _event(moment(max(time, begin)), _COUNTER, track, double(44, level))


def _steps_track(device: int) -> int:
    return 2 * device + 2


def _memory_track(device: int) -> int:
    return 2 * device + 3


def _title(timeline: Timeline) -> str:
    unit = timeline.problem.profile.time_unit
    scale = "" if unit in NANOSECONDS else f" (1 {unit or 'unit of time'} drawn as 1 us)"
    return f"{timeline.schedule.method}{scale}"


def _packet(*content: bytes) -> bytes:
    return message(1, *content, _SEQUENCE)


def _track(uuid: int, name: str, rank: int, more: bytes = b"") -> bytes:
    return message(60, number(1, uuid), number(5, _ROOT), text(2, name), number(12, rank), more)


def _event(time: int, type: int, *content: bytes) -> bytes:
    return _packet(number(8, time), message(11, number(9, type), *content))


def _name(step: Step) -> str:
    return " + ".join(f"{operation.kind} {operation.microbatch}" for operation in parts(step))


def _notes(step: Step, slack: float) -> Iterator[bytes]:
    """What a click on the slice shows."""
    for operation in parts(step):
        yield message(4, text(10, MEANINGS[operation.kind]), text(6, _place(operation)))
    yield message(4, text(10, "slack"), double(5, slack))


def _place(operation: Operation) -> str:
    return f"stage {operation.stage}, micro-batch {operation.microbatch}"


def _flows(found: list[list[tuple[Arrival, ...]]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """One flow per transfer: by number of the step, those that begin and those that end there."""
    offsets = [0, *itertools.accumulate(map(len, found))]
    sent: dict[int, list[int]] = {}
    received: dict[int, list[int]] = {}
    flows = itertools.count(1)
    for device, steps in enumerate(found):
        for index, needs in enumerate(steps):
            for need in needs:
                if need.device != device:
                    flow = next(flows)
                    sent.setdefault(offsets[need.device] + need.step, []).append(flow)
                    received.setdefault(offsets[device] + index, []).append(flow)
    return sent, received
