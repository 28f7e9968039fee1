"""Idleness: when every device idles, and why."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .arrival import Arrival, last_arrival
from .operation import Step, parts
from .simulation import Timeline

CAUSES = {
    "warm-up": "before the device's first step",
    "dependency": "waits for a step that another device has not finished",
    "transfer": "waits for a value that is on its way",
    "memory": "a later step was ready and would have fitted in here, but the cap forbids it",
    "order": "a later step was ready and would have fitted in here, but the order holds it back",
    "drain": "after the device's last step",
}
"""Why a device idles, in words."""

REMEDIES = {
    "warm-up": "more micro-batches, or stages cut into more chunks per device, make it a smaller share",
    "dependency": "faster or better balanced stages on the devices that it waits for, or an order that feeds it sooner",
    "transfer": "a faster link, or work between a send and the step that needs it",
    "memory": "a higher cap on this device, or recomputation",
    "order": "another order: let the search move ready work in here",
    "drain": "more micro-batches, or stages cut into more chunks per device, make it a smaller share",
}
"""What makes idle time of each cause less."""

_ROUNDING = 1e-9


class Gap(NamedTuple):
    """Idle time of one device with one cause, from `start` to `end`.

    `before` is the index of the device's next step (the number of its steps in the drain). `step` is the one that
    explains the gap: (device, index) of what the device waits for, or of its own step that was ready, but held back;
    None in warm-up and drain.
    """

    device: int
    start: float
    end: float
    cause: str
    before: int
    step: tuple[int, int] | None

    @property
    def length(self) -> float:
        return self.end - self.start


def levels(timeline: Timeline, device: int) -> tuple[np.ndarray, np.ndarray]:
    """The memory held during every step of a device (increases count from its start), and after it."""
    static = timeline.problem.static_memory[device]
    memory = np.array([timeline.problem.memory(step) for step in timeline.schedule.orders[device]], float).reshape(
        -1, 2
    )
    after = static + np.cumsum(memory[:, 1])
    before = np.concatenate(([static], after[:-1]))
    return before + memory[:, 0], after


def gaps(timeline: Timeline, arrivals: list[list[tuple[Arrival, ...]]]) -> list[list[Gap]]:
    """By device, its idle time in order, each gap cut where the cause changes.

    Between two steps a device waits for the input that comes last: for the step that makes it (`dependency`), then
    for its `transfer`. Where a later step of the device was ready and would have fitted into the wait, the time it
    would have filled is put down to what held it back instead: the cap (`memory`), when moving that step there would
    hold more than the cap at any time until its own place, else the `order`. Each wait is judged alone.
    """
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    return [list(_Device(timeline, arrivals, device).gaps(begin)) for device in range(timeline.schedule.devices)]


def by_cause(found: list[Gap]) -> dict[str, float]:
    """The idle time of each cause, in the order of `CAUSES`."""
    totals = dict.fromkeys(CAUSES, 0.0)
    for gap in found:
        totals[gap.cause] += gap.length
    return totals


class _Device:
    """What the gaps of one device are judged with."""

    def __init__(self, timeline: Timeline, arrivals: list[list[tuple[Arrival, ...]]], device: int) -> None:
        self.timeline, self.device = timeline, device
        self.order, self.needs = timeline.schedule.orders[device], arrivals[device]
        self.starts, self.ends = timeline.starts[device], timeline.ends[device]
        self.all_ends = timeline.ends
        self.during, after = levels(timeline, device)
        self.before = np.concatenate(([timeline.problem.static_memory[device]], after))
        self.rounding = _ROUNDING * timeline.makespan
        self.places: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
        for index, step in enumerate(self.order):
            if self.ends[index] > self.starts[index]:
                self.places[_kind(step)].append(index)

    def gaps(self, begin: float) -> Iterator[Gap]:
        last = begin + self.timeline.makespan
        if not self.order:
            yield from self._gap(begin, last, "drain", 0, None)
            return
        yield from self._gap(begin, self.starts[0], "warm-up", 0, None)
        for index in range(1, len(self.order)):
            if self.starts[index] - self.ends[index - 1] > self.rounding:
                yield from self._between(index)
        yield from self._gap(self.ends[-1], last, "drain", len(self.order), None)

    def _gap(self, start: float, end: float, cause: str, before: int, step: tuple[int, int] | None) -> Iterator[Gap]:
        if end - start > self.rounding:
            yield Gap(self.device, start, end, cause, before, step)

    def _between(self, index: int) -> Iterator[Gap]:
        """The wait before one step: what could have filled it, and the rest."""
        moment, end = self.ends[index - 1], self.starts[index]
        for start, held_back, forbidden in self._fill(index, moment, end):
            yield from self._wait(moment, start, index)
            moment = start + self.ends[held_back] - self.starts[held_back]
            cause = "memory" if forbidden else "order"
            yield from self._gap(start, moment, cause, index, (self.device, held_back))
        yield from self._wait(moment, end, index)

    def _wait(self, start: float, end: float, index: int) -> Iterator[Gap]:
        awaited = last_arrival(self.needs[index])
        assert awaited is not None  # a step without inputs starts as soon as its device is free
        source = (awaited.device, awaited.step)
        finished = min(max(self.all_ends[awaited.device][awaited.step], start), end)
        yield from self._gap(start, finished, "dependency", index, source)
        yield from self._gap(finished, end, "transfer", index, source)

    def _fill(self, index: int, moment: float, end: float) -> Iterator[tuple[float, int, bool]]:
        """(start, step, forbidden by the cap): later steps that would fit into this wait, one after another.

        Of each kind and stage the next one stands for the others, which come after it. What the cap allows goes
        first, then what was ready first.
        """
        extra = np.zeros(0)
        queues = [iter(places[bisect_left(places, index + 1) :]) for places in self.places.values()]
        heads = [(queue, head) for queue in queues if (head := next(queue, None)) is not None]
        while heads:
            fitting = []
            for queue, head in heads:
                ready = max(
                    (
                        float("inf") if need.device == self.device and need.step >= index else need.time
                        for need in self.needs[head]
                    ),
                    default=0.0,
                )
                start = max(moment, ready)
                if start + self.ends[head] - self.starts[head] <= end + self.rounding:
                    fitting.append((start, self._forbidden(index, head, extra), head, queue))
            if not fitting:
                return
            start, forbidden, head, queue = min(fitting, key=lambda found: found[:3])
            yield start, head, forbidden
            moment = start + self.ends[head] - self.starts[head]
            if not forbidden:
                if not len(extra):
                    extra = np.zeros(len(self.order) - index)
                extra[: head - index] += self.before[head + 1] - self.before[head]
            following = next(queue, None)
            heads = [(q, h) for q, h in heads if q is not queue]
            if following is not None:
                heads.append((queue, following))

    def _forbidden(self, index: int, head: int, extra: np.ndarray) -> bool:
        """True when step `head`, moved to before step `index`, would break the cap there or until its own place."""
        rise, change = self.during[head] - self.before[head], self.before[head + 1] - self.before[head]
        held = self.during[index:head] + change
        first = self.before[index] + rise
        if len(extra):
            held = held + extra[: head - index]
            first += extra[0]
        return not self.timeline.problem.within_cap(self.device, max(float(held.max()), float(first)))


def _kind(step: Step) -> tuple[tuple[str, int], ...]:
    return tuple((operation.kind, operation.stage) for operation in parts(step))
