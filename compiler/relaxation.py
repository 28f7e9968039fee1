"""The few-device relaxation: some devices with their own operations, order, memory and cap; all else replaced by lags.

Keep the kept devices' operations as they are. Between two of them that one micro-batch passes one after the other, the
left-out devices cost at least the sum of their durations and transfers (the lag), and they pass micro-batches on no
faster than their own work allows (the convoy). Before the first there is a head, after the last a tail. Every schedule
of the whole problem gives a schedule of the relaxation with the same or a smaller value, so what no schedule of the
relaxation reaches, no schedule of the problem reaches.

A device may also be kept in passing: its forwards and backwards in some order, one at a time, without its W and its
memory. What it proves is how micro-batches get in each other's way, for far fewer states.

Three reductions lose nothing of the bound. Micro-batches of one direction are identical, so every stage takes them in
number order (sort the starts of each stage; where they differ, all take the least factor, the times of those that keep
their activations and the memory of those that are recomputed, which only helps). Times are whole ticks, durations and
lags rounded down. An overlapped pair is only offered where its ratio is below 1: else its forward followed by its
backward is as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from .problem import Problem
from .route import Clock, Line, Route, highest, prepared

NEVER = -(10**30)

Counts = tuple[int, ...]
Kept = tuple[tuple[int, ...], tuple[int, ...]]
"""The devices kept whole, at least one, and those kept in passing."""


@dataclass(frozen=True)
class Slot:
    """One F or B (`kind`) of a chunk on a kept device, as part of the route of a micro-batch; times are in ticks.

    `device` counts among the kept devices. `previous` is the slot before it on the route, or -1. The j-th micro-batch
    may start when, for every convoy (offset, rate) and every i <= j, the i-th left the previous slot
    offset + (j - i) * rate ticks before; without convoys, as soon as it left. `heads[j]` is its earliest start where
    there is no previous slot. `tails[j]` is the least time from its end to the end of the schedule.
    `share` is the least device time it takes, `whole` that of a backward with its W.
    """

    device: int
    kind: str
    stage: int
    previous: int
    convoys: tuple[Line, ...]
    heads: tuple[int, ...]
    tails: tuple[int, ...]
    share: int
    whole: int
    weight: int
    """The share of W."""


@dataclass(frozen=True, eq=False)
class Move:
    """One thing that a kept device may do next: `slots` it takes one step further, `counters` that go up by one.

    `rise` is the memory it needs at its worst moment, more than is held before.
    """

    device: int
    slots: tuple[int, ...]
    counters: tuple[int, ...]
    weight_of: int
    """For a W on its own the slot of its B, else -1."""
    duration: int
    rise: float


@dataclass(frozen=True)
class Relaxation:
    """Counters 0..n-1 count the slots done, n..2n-1 the W's done of each backward slot.

    The latter are unused for forwards and for devices kept in passing.
    """

    devices: tuple[int, ...]
    slots: tuple[Slot, ...]
    moves: tuple[Move, ...]
    microbatches: tuple[int, ...]
    """For each slot, how many micro-batches pass it."""
    changes: tuple[float, ...]
    """For each counter, the change of memory per step."""
    rooms: tuple[float, ...]
    """For each kept device, the memory that its cap leaves above its static memory."""
    measured: tuple[bool, ...]
    """For each kept device, whether the end of its work counts for the objective (else only the tails do)."""

    @cached_property
    def final(self) -> Counts:
        """The counters when everything is done."""
        counted = {counter for move in self.moves for counter in move.counters}
        weights = (m if len(self.slots) + i in counted else 0 for i, m in enumerate(self.microbatches))
        return (*self.microbatches, *weights)

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """For each slot the next one on its route, or -1."""
        after = [-1] * len(self.slots)
        for index, slot in enumerate(self.slots):
            if slot.previous >= 0:
                after[slot.previous] = index
        return tuple(after)

    @cached_property
    def shortest(self) -> tuple[int, ...]:
        """For each slot, the least time between two of its starts."""
        return tuple(min(move.duration for move in self.moves if i in move.slots) for i in range(len(self.slots)))

    def held(self, counts: Counts) -> list[float]:
        """The memory of each kept device above its static memory, between two operations."""
        n = len(self.slots)
        held = [0.0] * len(self.devices)
        for index, slot in enumerate(self.slots):
            held[slot.device] += counts[index] * self.changes[index] + counts[n + index] * self.changes[n + index]
        return held

    def permits(self, counts: Counts, held: list[float], move: Move) -> bool:
        """True when counts and memory (`held`, of these counts) allow a move."""
        if move.rise > 0 and held[move.device] + move.rise > self.rooms[move.device]:
            return False
        weight = move.weight_of
        if weight >= 0 and counts[len(self.slots) + weight] >= counts[weight]:
            return False
        for i in move.slots:
            before = self.slots[i].previous
            if counts[i] >= (self.microbatches[i] if before < 0 else counts[before]):
                return False
        return True

    def moves_from(self, counts: Counts) -> list[Move]:
        """The moves that counts and memory allow."""
        held = self.held(counts)
        return [move for move in self.moves if self.permits(counts, held, move)]

    @cached_property
    def fillers(self) -> frozenset[Move]:
        """The moves that are never worse for being done in a gap that they fit: they need no memory and free some.

        A W; and an F or B that does not raise memory, where its slot has no other kind of move to choose.
        """
        only = [i for i in range(len(self.slots)) if sum(i in move.slots for move in self.moves) == 1]
        return frozenset(
            move
            for move in self.moves
            if move.weight_of >= 0
            or (move.slots[0] in only and self.changes[move.slots[0]] <= 0 and move.rise <= 0 < move.duration)
        )

    def fills(self, move: Move, enabled: list[Move]) -> list[Move]:
        """The enabled moves for which this one need not leave a gap that they fit."""
        if move.weight_of >= 0:
            return []
        return [m for m in enabled if m in self.fillers and m.device == move.device and m is not move]

    def loads(self, counts: Counts) -> list[int]:
        """The least time that each kept device still has to work."""
        n = len(self.slots)
        loads = [0] * len(self.devices)
        for index, slot in enumerate(self.slots):
            loads[slot.device] += (self.microbatches[index] - counts[index]) * slot.whole
            if slot.kind == "B":
                loads[slot.device] += (counts[index] - counts[n + index]) * slot.weight
        return loads

    def rests(self, counts: Counts) -> list[int]:
        """For each kept device, the least time from when it is free to the end of the schedule.

        All its work that is left; or what has to pass the slots up to one on a route, and the tail of the last there.
        The clock of a device with nothing left only says when others began: then a time far in the past.
        """
        before = [0] * len(self.devices)
        rests = [
            load if load and measured else NEVER
            for load, measured in zip(self.loads(counts), self.measured, strict=True)
        ]
        for index, slot in enumerate(self.slots):
            left = self.microbatches[index] - counts[index]
            if slot.previous < 0:
                before = [0] * len(self.devices)
            if left:
                before[slot.device] += left * slot.share
                rests[slot.device] = max(rests[slot.device], before[slot.device] + slot.tails[-1])
        return rests

    def part(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """The counters of some of the kept devices, in the order of the relaxation that keeps these."""
        own = [index for index, slot in enumerate(self.slots) if self.devices[slot.device] in devices]
        return (*own, *(len(self.slots) + index for index in own))


@dataclass(frozen=True)
class Mirror(Relaxation):
    """A relaxation in reversed time: the same orders from their end, counters counting from the last operation.

    Lags and convoys hold both ways, heads and tails change places. How early a state can be reached here says how much
    time is at least left from that state there.
    """

    original: Relaxation

    def moves_from(self, counts: Counts) -> list[Move]:
        original = self.original
        now = self.seen(counts)
        moves = []
        for move, mirrored in zip(original.moves, self.moves, strict=True):
            earlier = list(now)
            for counter in move.counters:
                earlier[counter] -= 1
            before = tuple(earlier)
            if self._reachable(before) and original.permits(before, original.held(before), move):
                moves.append(mirrored)
        return moves

    def _reachable(self, counts: Counts) -> bool:
        """True when no operation of the original is counted before what it needs."""
        slots, n = self.original.slots, len(self.slots)
        return min(counts) >= 0 and all(
            counts[n + i] <= counts[i] and (slot.previous < 0 or counts[i] <= counts[slot.previous])
            for i, slot in enumerate(slots)
        )

    def fills(self, move: Move, enabled: list[Move]) -> list[Move]:
        return []

    def loads(self, counts: Counts) -> list[int]:
        now, n = self.seen(counts), len(self.slots)
        loads = [0] * len(self.devices)
        for index, slot in enumerate(self.original.slots):
            whole = now[n + index] if slot.kind == "B" else now[index]
            loads[slot.device] += whole * slot.whole + (now[index] - whole) * slot.share
        return loads

    def seen(self, counts: Counts) -> Counts:
        """The counters of the original relaxation where these stand."""
        return _reflect(counts, self.original.final)

    def turned(self, counts: Counts) -> Counts:
        """The counters here where these of the original relaxation stand."""
        return _reflect(counts, self.final)


def _reflect(counts: Counts, final: Counts) -> Counts:
    """What is left of each counter, in reversed order."""
    n = len(counts) // 2
    return tuple(full - done for full, done in zip(final, counts[n - 1 :: -1] + counts[: n - 1 : -1], strict=True))


def mirror(relaxation: Relaxation) -> Mirror:
    """The relaxation in reversed time."""
    slots, n = relaxation.slots, len(relaxation.slots)
    turned = []
    for index in reversed(range(n)):
        slot, after = slots[index], relaxation.successors[index]
        turned.append(
            replace(
                slot,
                previous=-1 if after < 0 else n - 1 - after,
                convoys=() if after < 0 else slots[after].convoys,
                heads=slot.tails[::-1],
                tails=slot.heads[::-1] or (0,) * relaxation.microbatches[index],
            )
        )
    moves = [
        replace(
            move,
            slots=tuple(n - 1 - i for i in move.slots),
            counters=tuple(n - 1 - i if i < n else 3 * n - 1 - i for i in move.counters),
            weight_of=-1,
        )
        for move in relaxation.moves
    ]
    fields = vars(relaxation) | {"slots": tuple(turned), "moves": tuple(moves)}
    fields["microbatches"] = relaxation.microbatches[::-1]
    return Mirror(**{name: fields[name] for name in Relaxation.__dataclass_fields__}, original=relaxation)


def most_kept(problem: Problem) -> int:
    """How many devices a relaxation can keep.

    For span on a bidirectional placement one: no device is passed first in both directions, so that no two share a
    clock.
    """
    return 1 if problem.objective == "span" and problem.placement.bidirectional else problem.devices


def simpler(problem: Problem, kept: Kept) -> list[Kept]:
    """The relaxations that say how much time is left in this one, with one or two of its devices.

    Each whole device alone; the first of them with each one in passing. For span only a device alone with whose forward
    the clock starts: the ends of others are not bounded by the value, and so have no last moment to look back from.
    """
    whole, passing = kept
    fewer: list[Kept] = [((device,), ()) for device in whole]
    if problem.objective == "makespan":
        fewer += [((whole[0],), (device,)) for device in passing]
    else:
        begin = relax(problem, kept).slots[0].stage
        fewer = [part for part in fewer if relax(problem, part).slots[0].stage == begin]
    return [part for part in fewer if part != kept]


@lru_cache(maxsize=64)
def relax(problem: Problem, kept: Kept) -> Relaxation:
    """The relaxation that keeps these devices (see the module).

    For span the clock starts with the first forward of the kept device that a micro-batch passes first, and the value
    is the span of this device or of one passed before it. At most `most_kept` devices can be kept.
    """
    clock, paths = prepared(problem)
    whole, passing = kept
    devices = (*whole, *passing)
    slots: list[Slot] = []
    counts: list[int] = []
    for path in paths:
        places = sorted(position for device in devices for position in path.places.get(device, ()))
        for index, position in enumerate(places):
            kind, stage, device = path.kinds[position], path.stages[position], path.devices[position]
            first = index == 0
            before = -1 if first else places[index - 1]
            slots.append(
                Slot(
                    device=devices.index(device),
                    kind=kind,
                    stage=stage,
                    previous=-1 if first else len(slots) - 1,
                    convoys=() if first else path.convoys(before, position),
                    heads=path.heads(position) if first and problem.objective == "makespan" else (),
                    tails=_tails(problem, path, position, devices),
                    share=path.shares[position],
                    whole=path.wholes[position],
                    weight=0 if device in passing else path.weights[position],
                )
            )
            counts.append(path.microbatches)
    rooms = tuple(room(problem, device) for device in devices)
    measured = tuple(problem.objective == "makespan" or slots[0].device == d for d in range(len(devices)))
    moves = (*_moves(problem, clock, slots, whole), *_passing_moves(clock, slots, len(whole)))
    factor = float(clock.factor)
    held = [slot.device < len(whole) for slot in slots]
    changes = [problem.least[slot.kind][slot.stage].change * factor * held[i] for i, slot in enumerate(slots)]
    changes += [
        problem.least["W"][slot.stage].change * factor if slot.kind == "B" and held[i] else 0.0
        for i, slot in enumerate(slots)
    ]
    return Relaxation(devices, tuple(slots), moves, tuple(counts), tuple(changes), rooms, measured)


def room(problem: Problem, device: int) -> float:
    """The memory that the cap of a device leaves above its static memory.

    With the slack of `Problem.within_cap`, and a little more for the order in which floats are added.
    """
    return problem.caps[device] * (1 + 2e-9) + 2e-12 - problem.static_memory[device]


def _tails(problem: Problem, path: Route, position: int, devices: tuple[int, ...]) -> tuple[int, ...]:
    """Tails for the objective.

    For span, the clock starts with the first forward on the kept device that is passed first; a device q passed
    before it starts at least the way from q earlier, so that its span is at least that way and the time until q is
    done.
    """
    lines = {(0, 0)}
    if problem.objective == "makespan":
        lines = path.tails(position)
    elif not problem.placement.bidirectional:
        first = min(map(path.devices.index, devices))
        for q in dict.fromkeys(path.devices[: first + 1]):
            if q != path.devices[position]:
                way = path.starts[first] - path.starts[path.places[q][0]]
                lines |= {(way + offset, rate) for offset, rate in path.tails_of(position, q)}
    return highest(lines, path.microbatches)[::-1]


def _moves(problem: Problem, clock: Clock, slots: list[Slot], devices: tuple[int, ...]) -> Iterator[Move]:
    """Everything the devices kept whole may do: F, B, W, BW, and overlapped pairs whose ratio is below 1."""
    least, factor, n = problem.least, float(clock.factor), len(slots)

    def move(device: int, kinds: list[tuple[str, int]], duration: int, weight_of: int = -1) -> Move:
        rise = sum(least[kind][slots[index].stage].rise for kind, index in kinds)
        counters = [index for kind, index in kinds if kind != "W"]
        counters += [n + index for kind, index in kinds if kind in ("W", "BW")]
        flow = tuple(index for kind, index in kinds if kind != "W")
        return Move(device, flow, tuple(counters), weight_of, duration, rise * factor)

    for device in range(len(devices)):
        forwards = [i for i, slot in enumerate(slots) if slot.device == device and slot.kind == "F"]
        backwards = [i for i, slot in enumerate(slots) if slot.device == device and slot.kind == "B"]
        for i in forwards:
            yield move(device, [("F", i)], clock.down(clock.durations["F"][slots[i].stage]))
        for i in backwards:
            stage = slots[i].stage
            times = {kind: clock.down(values[stage]) for kind, values in clock.durations.items()}
            if clock.split:
                yield move(device, [("B", i)], times["B"])
                yield move(device, [("W", i)], times["W"], i)
            # B and then W is as good as a fused backward that takes no less, unless memory rises more at B.
            rises = least["B"][stage].rise > least["BW"][stage].rise
            if clock.fused and not (clock.split and times["BW"] >= times["B"] + times["W"] and not rises):
                yield move(device, [("BW", i)], times["BW"])
            for kind in clock.backwards:
                for f in forwards:
                    for _, _, time in clock.pairs([slots[f].stage], [stage], kind):
                        yield move(device, [("F", f), (kind, i)], time)


def _passing_moves(clock: Clock, slots: list[Slot], whole: int) -> Iterator[Move]:
    """What devices kept in passing, those after the first `whole`, may do: F, their quickest backward, and pairs."""
    for i, slot in enumerate(slots):
        if slot.device < whole:
            continue
        kinds = ["F"] if slot.kind == "F" else clock.backwards
        quickest, kind = min((clock.durations[kind][slot.stage], kind) for kind in kinds)
        yield Move(slot.device, (i,), (i,), -1, clock.down(quickest), 0.0)
        for f, forward in enumerate(slots):
            if slot.kind == "B" and forward.kind == "F" and forward.device == slot.device:
                for _, _, time in clock.pairs([forward.stage], [slot.stage], kind):
                    yield Move(slot.device, (f, i), (f, i), -1, time, 0.0)
