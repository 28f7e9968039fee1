"""Traces: what the ranks of a run did and when, beside what the plan said.

Times are seconds from the first start of a compute instruction on any rank.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..compiler.instruction import Compute, Receive, Wait
from ..compiler.operation import Step, parts
from ..compiler.plan import Plan
from ..compiler.simulation import Execution, Timeline

Event = tuple[int, float, float]
"""The number of an instruction in its stream, when it began and when it ended."""

NOTABLE = 1.1
"""Operations that take more than this multiple of their planned share are named in a summary."""


class Idle(msgspec.Struct, frozen=True):
    """Why a device did not compute, in seconds: before its first step, waiting for values between steps, busy with
    anything else between steps (starting transfers, waiting for sends, Python), after its last step."""

    warm_up: float
    waiting: float
    overhead: float
    drain: float


class Trace(msgspec.Struct, frozen=True):
    """The last step of a run: every instruction of every device. `unit` is the seconds of one unit of planned time.

    Where the profile's unit is not a known one it is `fitted`: planned and measured computing time are made equal.
    """

    events: tuple[tuple[Event, ...], ...]
    unit: float
    fitted: bool = False

    @classmethod
    def of(cls, plan: Plan, recorded: Sequence[Sequence[Event]], unit: float | None) -> Trace:
        """From what the ranks recorded on one clock."""
        first = min(start for device, events in enumerate(recorded) for start, _ in _computed(plan, device, events))
        events = tuple(tuple((n, start - first, end - first) for n, start, end in device) for device in recorded)
        fitted = unit is None
        if unit is None:
            measured = sum(end - start for d, e in enumerate(events) for start, end in _computed(plan, d, e))
            unit = measured / (sum(plan.timeline.busy) or 1.0)
        return cls(events, unit, fitted)

    def timeline(self, plan: Plan) -> Timeline:
        """The measured starts and ends of all steps, in the plan's unit of time, to be drawn like any timeline."""
        spans = [list(_computed(plan, device, events)) for device, events in enumerate(self.events)]
        starts = [[start / self.unit for start, _ in device] for device in spans]
        ends = [[end / self.unit for _, end in device] for device in spans]
        places = [(device, index) for device, found in enumerate(ends) for index in range(len(found))]
        sequence = sorted(places, key=lambda place: ends[place[0]][place[1]])
        return Timeline(plan.problem, plan.schedule, Execution(starts, ends, sequence, True))

    def idle(self, plan: Plan) -> list[Idle]:
        """The idle time of every device by cause, within the makespan of the whole."""
        spans = [list(_computed(plan, device, events)) for device, events in enumerate(self.events)]
        last = max(device[-1][1] for device in spans)
        found = []
        for device, events in enumerate(self.events):
            begin, end = spans[device][0][0], spans[device][-1][1]
            stream = plan.streams[device]
            received = {i.value for i in stream if isinstance(i, Receive)}
            waiting = sum(
                end_of - start
                for number, start, end_of in events
                if isinstance(wait := stream[number], Wait) and wait.value in received and start >= begin
            )
            busy = sum(end_of - start for start, end_of in spans[device])
            found.append(Idle(begin, waiting, end - begin - busy - waiting, last - end))
        return found

    def summary(self, plan: Plan) -> str:
        """Where planned and measured part, and how much of the step was idle, by cause."""
        measured, planned = self.timeline(plan), plan.timeline
        lines = [
            f"makespan  {1e3 * measured.makespan * self.unit:.2f} ms measured, "
            f"{1e3 * planned.makespan * self.unit:.2f} ms planned "
            f"({measured.makespan / planned.makespan - 1:+.1%})",
            f"idle      {measured.idle_fraction:.1%} of all device time measured, {planned.idle_fraction:.1%} planned",
            "device       busy   warm-up   waiting  overhead     drain  (ms measured)",
        ]
        for device, (busy, idle) in enumerate(zip(measured.busy, self.idle(plan), strict=True)):
            times = (busy * self.unit, idle.warm_up, idle.waiting, idle.overhead, idle.drain)
            lines.append(f"{device:6}  " + "  ".join(f"{1e3 * time:8.2f}" for time in times))
        if self.fitted:
            lines.append(
                "note: the profile's time unit is not a known one, so planned times are scaled to compute as long"
            )
        for (kind, stage), ratio in self._ratios(plan, measured):
            lines.append(f"{kind} of stage {stage} took {ratio:.2f} times its planned time (median)")
        return "\n".join(lines)

    def _ratios(self, plan: Plan, measured: Timeline) -> Iterator[tuple[tuple[str, int], float]]:
        """Kinds of operations that took notably longer than planned, the worst first."""
        ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
        for device, order in enumerate(plan.schedule.orders):
            for step, start, end in zip(order, measured.starts[device], measured.ends[device], strict=True):
                planned = plan.problem.duration(step)
                if planned > 0:
                    for operation in parts(step):
                        ratios[operation.kind, operation.stage].append((end - start) / planned)
        medians = {key: statistics.median(found) for key, found in ratios.items()}
        for key, ratio in sorted(medians.items(), key=lambda item: -item[1]):
            if ratio > NOTABLE:
                yield key, ratio

    def as_json(self, plan: Plan) -> bytes:
        """Trace events (https://ui.perfetto.dev opens them): for every rank a measured and a planned row."""
        return json.dumps({"traceEvents": list(self._trace_events(plan)), "displayTimeUnit": "ms"}).encode()

    def _trace_events(self, plan: Plan) -> Iterator[dict[str, Any]]:
        rows = ("measured", "planned")
        for device in range(plan.problem.devices):
            yield {"ph": "M", "pid": device, "name": "process_name", "args": {"name": f"rank {device}"}}
            for row, name in enumerate(rows):
                yield {"ph": "M", "pid": device, "tid": row, "name": "thread_name", "args": {"name": name}}
            for number, start, end in self.events[device]:
                instruction = plan.streams[device][number]
                if isinstance(instruction, Compute):
                    yield _slice(device, 0, instruction.step, start, end)
                elif isinstance(instruction, Wait) and end - start > 0:
                    yield _slice(device, 0, str(instruction), start, end)
            timeline = plan.timeline
            planned = zip(plan.schedule.orders[device], timeline.starts[device], timeline.ends[device], strict=True)
            for step, start, end in planned:
                yield _slice(device, 1, step, start * self.unit, end * self.unit)


def _computed(plan: Plan, device: int, events: Sequence[Event]) -> Iterator[tuple[float, float]]:
    """Start and end of the compute instructions, in the order of the device."""
    stream = plan.streams[device]
    return ((start, end) for number, start, end in events if isinstance(stream[number], Compute))


def _slice(device: int, row: int, what: Step | str, start: float, end: float) -> dict[str, Any]:
    kind = what.split()[0] if isinstance(what, str) else "+".join(operation.kind for operation in parts(what))
    times = {"ts": round(1e6 * start, 3), "dur": round(1e6 * (end - start), 3)}
    return {"ph": "X", "pid": device, "tid": row, "name": str(what), "cat": kind, **times}
