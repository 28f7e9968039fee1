"""List scheduling: the pipeline run forward in time, each free device starting the most important ready operation."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .evaluation import BW, B, Model, Orders


@dataclass(frozen=True)
class Rule:
    """How `dispatch` chooses. `priority` is by operation number, least first; a BW goes by its B.

    `patience` says how long a free device leaves a ready F or B alone for a more important operation that is known to
    arrive: it waits when the delay it would cause exceeds `patience` x the idle time; `filler` is the same for W.
    `caps` may be tighter than the problem's. `entry` is the order in which the micro-batches of each direction enter.
    """

    priority: Sequence[float]
    patience: float = math.inf
    filler: float = 0.0
    caps: Sequence[float] | None = None
    entry: Sequence[Sequence[int]] | None = None
    fused: frozenset[int] = frozenset()
    """Stages whose backwards are fused from the start; others split, unless only BW fits the cap."""
    ahead: Sequence[int] | None = None
    """By lane, how many forwards may be ahead of the backwards."""
    pairs: bool = False
    """Whether a ready F and a ready backward run as one overlapped pair."""


class Room:
    """The memory of one device, and who may take more of it so that all who have entered can leave.

    Micro-batches are ordered by their entry into the pipeline. Taking memory is safe when afterwards each of them,
    oldest first, could finish alone while all younger ones keep what they hold (the banker's algorithm, Dijkstra
    1965): for each, the most it will hold from then on, plus what the younger ones hold, fits the cap. Then the oldest
    can always go on, and nothing gets stuck.
    """

    def __init__(self, model: Model, device: int, cap: float, *, fusing: bool) -> None:
        problem = model.problem
        self.cap = cap
        self.depth = model.depth
        self.static = self.held = problem.static_memory[device]
        lanes = model.lanes_of[device]
        first = (BW if fusing else B) * model.size + lanes[0] * model.depth
        self.plain = len(lanes) == 1 and max(model.rise[first : first + model.depth]) <= 0
        """One stage, whose memory does not rise after F: whatever fits is safe, and nobody needs to be told apart."""
        self.holding: dict[int, float] = {}
        """What each micro-batch that has entered and not left holds here, oldest first."""
        self.progress: dict[int, int] = {}
        """How many forwards and backwards of each are done here."""
        self.unfinished: dict[int, int] = {}
        """How many stages of each still have to free their memory here."""
        self.stages = [sum(lane // model.stages == d for lane in lanes) for d in range(len(model.counts))]
        """By direction, the number of stages here."""
        self.needs = model.needs[device]
        self.most = max(needs[0] for needs in self.needs)

    def enter(self, batch: int) -> None:
        """A micro-batch enters the pipeline."""
        if not self.plain:
            self.holding[batch] = 0.0
            self.progress[batch] = 0
            self.unfinished[batch] = self.stages[batch >= self.depth]

    def change(self, batch: int, change: float, *, steps: int, done: int) -> None:
        """A micro-batch takes or frees memory, with so many forwards and backwards, and so many stages done with it."""
        self.held += change
        self.holding[batch] += change
        self.progress[batch] += steps
        self.unfinished[batch] -= done
        if self.unfinished[batch] == 0:
            del self.holding[batch], self.progress[batch], self.unfinished[batch]

    def safe(self, batch: int, rise: float, change: float, steps: int = 1) -> bool:
        """True when a micro-batch may do what takes `rise` at its start, and keep `change` of it."""
        if self.held + rise > self.cap:
            return False
        if self.plain or change <= 0 or self.held + change + self.most <= self.cap:
            return True
        reached = batch not in self.holding  # it enters now, as the youngest of all
        younger = self.static + (change if reached else 0.0)
        for other in reversed(self.holding):
            own, progress = self.holding[other], self.progress[other]
            if other == batch:
                reached = True
                own += change
                progress += steps
            if reached and younger + max(self.needs[other][progress], own) > self.cap:
                return False
            younger += own
        return True


def dispatch(model: Model, rule: Rule, *, limit: float = math.inf) -> Orders | None:
    """List scheduling by a rule; None as soon as a device's work and idle time reach `limit`, or when it got stuck.

    No rule under the problem's own caps gets stuck.
    """
    run = _Run(model, rule)
    spent = model.least_work.copy()
    while run.events:
        time, device = heapq.heappop(run.events)
        if run.free[device] <= time:
            step = run.choose(device, time)
            if step >= 0:
                if run.orders[device] or not model.span:
                    spent[device] += time - run.free[device]
                    if spent[device] >= limit:
                        return None
                run.start(device, time, step)
    return run.orders if run.left == 0 else None


class _Run:
    """The state of one run of list scheduling.

    Events are the times at which a device becomes free or an input reaches it; everything that starts before an event
    is decided when the event comes, so the arrivals after it are known as far as their operations have started.
    """

    def __init__(self, model: Model, rule: Rule) -> None:
        self.model, self.rule = model, rule
        problem = model.problem
        self.fusing = problem.backward != "split"
        self.fused = frozenset(range(model.stages)) if problem.backward == "fused" else rule.fused
        caps = model.tolerances if rule.caps is None else rule.caps
        self.rooms = [Room(model, d, caps[d], fusing=self.fusing) for d in range(model.devices)]
        self.entry = [
            (rule.entry[lane // model.stages] if rule.entry else range(model.counts[lane // model.stages]))
            for lane in range(model.lanes)
        ]
        self.forwards = [0] * model.lanes
        self.backwards = [0] * model.lanes
        self.next_forward = [-1] * model.lanes
        """By lane, the F that may come next; -1 when all are done or enough are ahead."""
        self.next_backward = [-1] * model.lanes
        """By lane, the B that comes next; -1 when its F is not done."""
        self.weights: list[deque[int]] = [deque() for _ in range(model.lanes)]
        self.ready = [math.inf] * (2 * model.size)
        self.free = [0.0] * model.devices
        self.orders: Orders = [[] for _ in range(model.devices)]
        self.events: list[tuple[float, int]] = []
        self.left = model.total
        for lane in range(model.lanes):
            self._look_ahead(lane)
            if lane % model.stages == 0:
                for rank in self.entry[lane]:
                    self.ready[lane * model.depth + rank] = 0.0
                heapq.heappush(self.events, (0.0, model.owner[lane]))

    def _look_ahead(self, lane: int) -> None:
        """Set what comes next on a lane."""
        model, ahead, entry = self.model, self.rule.ahead, self.entry[lane]
        done, returned = self.forwards[lane], self.backwards[lane]
        begin = lane * model.depth
        allowed = done < len(entry) and (ahead is None or done - returned < ahead[lane])
        self.next_forward[lane] = begin + entry[done] if allowed else -1
        self.next_backward[lane] = model.size + begin + entry[returned] if returned < done else -1

    def choose(self, device: int, now: float) -> int:
        """The step that a free device starts now; -1 to wait for the next event."""
        model, rule = self.model, self.rule
        priority, ready, room = rule.priority, self.ready, self.rooms[device]
        best, least, filler = -1, math.inf, False
        coming: list[tuple[float, float]] = []
        forward = backward = -1
        for lane in model.lanes_of[device]:
            x = self.next_backward[lane]
            if x >= 0 and (arrival := ready[x]) < math.inf:
                if arrival > now:
                    coming.append((priority[x], arrival))
                elif priority[x] < least or (rule.pairs and backward < 0):
                    step = self._backward(lane, x, room)
                    if step >= 0:
                        backward = step
                        if priority[x] < least:
                            best, least, filler = step, priority[x], False
            x = self.next_forward[lane]
            if (
                x >= 0
                and (arrival := ready[x]) < math.inf
                and (priority[x] < least or (rule.pairs and forward < 0))
                and room.safe(model.batch[x], model.rise[x], model.change[x])
            ):
                if arrival > now:
                    coming.append((priority[x], arrival))
                else:
                    forward = x
                    if priority[x] < least:
                        best, least, filler = x, priority[x], False
            weights = self.weights[lane]
            if weights and priority[weights[0]] < least:
                best, least, filler = weights[0], priority[weights[0]], True
        if best < 0:
            return -1
        if coming:
            end = now + model.duration[best]
            patience = rule.filler if filler else rule.patience
            for other, arrival in coming:
                if other < least and arrival < end and end - arrival > patience * (arrival - now):
                    return -1
        if (
            rule.pairs
            and not filler
            and min(forward, backward) >= 0
            and model.problem.pair_ratios[model.lane[forward] % model.stages] < 1
            and model.batch[forward] != model.batch[backward]
            and model.change[backward] <= 0
            and room.held + model.rise[forward] + model.rise[backward] <= room.cap
        ):
            return model.pair(forward, backward)
        return best

    def _backward(self, lane: int, x: int, room: Room) -> int:
        """The B or BW of a lane's next micro-batch that may start; -1 where neither fits now."""
        model = self.model
        fused = x + 2 * model.size
        for step in (fused,) if lane % model.stages in self.fused else (x, fused) if self.fusing else (x,):
            rise = model.rise[step]
            if rise <= 0 or room.safe(model.batch[x], rise, model.change[step]):
                return step
        return -1

    def start(self, device: int, now: float, step: int) -> None:
        """Start a step: its end frees the device, its result becomes ready where it is needed."""
        model, size = self.model, self.model.size
        single = step < model.pairs
        end = now + (model.duration[step] if single else model.length(step))
        self.free[device] = end
        heapq.heappush(self.events, (end, device))
        self.orders[device].append(step)
        room = self.rooms[device]
        for x in (step,) if single else model.parts(step):
            lane = model.lane[x]
            if x < size:
                if lane % model.stages == 0:
                    for other in self.rooms:
                        other.enter(model.batch[x])
                self.forwards[lane] += 1
                self.left -= 1
            elif x < 2 * size:
                self.backwards[lane] += 1
                self.weights[lane].append(x + size)
                self.left -= 1
            elif x < 3 * size:
                self.weights[lane].popleft()
                self.left -= 1
            else:
                self.backwards[lane] += 1
                self.left -= 2
            if room.plain:
                room.held += model.change[x]
            else:
                weight = 2 * size <= x < 3 * size
                room.change(model.batch[x], model.change[x], steps=not weight, done=x >= 2 * size)
            self._look_ahead(lane)
            target = model.target[x]
            if target >= 0:
                arrival = end + model.lag[target]
                self.ready[target] = arrival
                heapq.heappush(self.events, (arrival, model.owner[model.lane[target]]))
