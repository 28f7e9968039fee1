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
    "dependency": "faster or better balanced stages on the devices that it waits for",
    "transfer": "a faster link",
    "memory": "a higher cap on this device, or recomputation",
    "order": "",
    "drain": "more micro-batches, or stages cut into more chunks per device, make it a smaller share",
}
"""What makes idle time of each cause less, whatever the order."""

ORDERS = {
    "dependency": "an order that feeds it sooner",
    "transfer": "an order with work between a send and the step that needs it",
    "order": "another order: let the search move ready work in here",
}
"""What another order could do about it."""

_ROUNDING = 1e-9


class Gap(NamedTuple):
    """Idle time of one device with one cause, from `start` to `end`.

    `before` is the index of the device's next step (the number of its steps in the drain). `step` is the one that
    explains the gap: (device, index) of what the device waits for, or of its own step that was ready, but held back;
    None in warm-up and drain. `level` is what the device would hold with a step that the cap holds back, else None.
    """

    device: int
    start: float
    end: float
    cause: str
    before: int
    step: tuple[int, int] | None
    level: float | None = None

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def delayed(self) -> int | None:
        """The index of the device's step that would come sooner without this gap; None in the drain.

        When this step has slack, the gap costs nothing: the critical path does not lead through it.
        """
        if self.cause == "drain":
            return None
        return self.step[1] if self.step is not None and self.step[0] == self.device else self.before


def remedy(cause: str, *, optimal: bool) -> str:
    """What would make idle time of a cause less; no other order where the one at hand is proved optimal."""
    hints = [REMEDIES[cause], "" if optimal else ORDERS.get(cause, "")]
    return ", or ".join(filter(None, hints)) or "nothing: it is proved that no order is faster"


def awaited(timeline: Timeline, arrivals: list[list[tuple[Arrival, ...]]], device: int, index: int) -> Arrival | None:
    """The input that a step waited for; None when it started as soon as its device was free."""
    need = last_arrival(arrivals[device][index])
    free = timeline.ends[device][index - 1] if index else 0.0
    return need if need is not None and need.time - free > _ROUNDING * timeline.makespan else None


def roots(timeline: Timeline, arrivals: list[list[tuple[Arrival, ...]]]) -> list[list[int]]:
    """By device and index, the busy device that a step is held up by in the end.

    A step that started as soon as its device was free is held up by that device; one that waited, by whatever held up
    the step that it waited for. Linear in the number of steps.
    """
    found = [[device] * len(order) for device, order in enumerate(timeline.schedule.orders)]
    for device, index in timeline.execution.sequence:
        need = awaited(timeline, arrivals, device, index)
        if need is not None:
            found[device][index] = found[need.device][need.step]
    return found


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


def by_root(found: list[Gap], roots: list[list[int]]) -> dict[int, float]:
    """The time spent waiting for other devices' results, by the device that each wait is due to in the end."""
    waits: dict[int, float] = defaultdict(float)
    for gap in found:
        if gap.cause in ("dependency", "transfer") and gap.step is not None:
            waits[roots[gap.step[0]][gap.step[1]]] += gap.length
    return dict(waits)


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

    def _gap(
        self,
        start: float,
        end: float,
        cause: str,
        before: int,
        step: tuple[int, int] | None,
        level: float | None = None,
    ) -> Iterator[Gap]:
        if end - start > self.rounding:
            yield Gap(self.device, start, end, cause, before, step, level)

    def _between(self, index: int) -> Iterator[Gap]:
        """The wait before one step: what could have filled it, and the rest."""
        moment, end = self.ends[index - 1], self.starts[index]
        for start, held_back, level in self._fill(index, moment, end):
            yield from self._wait(moment, start, index)
            moment = start + self.ends[held_back] - self.starts[held_back]
            cause = "order" if level is None else "memory"
            yield from self._gap(start, moment, cause, index, (self.device, held_back), level)
        yield from self._wait(moment, end, index)

    def _wait(self, start: float, end: float, index: int) -> Iterator[Gap]:
        awaited = last_arrival(self.needs[index])
        assert awaited is not None  # a step without inputs starts as soon as its device is free
        source = (awaited.device, awaited.step)
        finished = min(max(self.all_ends[awaited.device][awaited.step], start), end)
        yield from self._gap(start, finished, "dependency", index, source)
        yield from self._gap(finished, end, "transfer", index, source)

    def _fill(self, index: int, moment: float, end: float) -> Iterator[tuple[float, int, float | None]]:
        """(start, step, level that breaks the cap): later steps that would fit into this wait, one after another.

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
                    level = self._level(index, head, extra)
                    fits = self.timeline.problem.within_cap(self.device, level)
                    fitting.append((start, not fits, head, level, queue))
            if not fitting:
                return
            start, forbidden, head, level, queue = min(fitting, key=lambda found: found[:3])
            yield start, head, level if forbidden else None
            moment = start + self.ends[head] - self.starts[head]
            if not forbidden:
                if not len(extra):
                    extra = np.zeros(len(self.order) - index)
                extra[: head - index] += self.before[head + 1] - self.before[head]
            following = next(queue, None)
            heads = [(q, h) for q, h in heads if q is not queue]
            if following is not None:
                heads.append((queue, following))

    def _level(self, index: int, head: int, extra: np.ndarray) -> float:
        """The most that is held with step `head` moved to before step `index`, there and until its own place."""
        rise, change = self.during[head] - self.before[head], self.before[head + 1] - self.before[head]
        held = self.during[index:head] + change
        first = self.before[index] + rise
        if len(extra):
            held = held + extra[: head - index]
            first += extra[0]
        return max(float(held.max()), float(first))


def _kind(step: Step) -> tuple[tuple[str, int], ...]:
    return tuple((operation.kind, operation.stage) for operation in parts(step))
