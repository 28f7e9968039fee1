"""Tasks: the operations of a problem as integers, the form in which windows, the ILP and CP-SAT see it.

Every start time is a sum of durations and transfer times, so it is a multiple of their common tick.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ..compiler.operation import Operation, parts
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from ..compiler.simulation import inputs

FINEST = 10**6
"""A cost has at most about this many ticks; where the exact tick is finer, costs are rounded down."""


@dataclass(frozen=True)
class Fusion:
    """A backward that may be split or fused: its tasks `backward` (B) and `weight` (W).

    Split, W takes `split` ticks. Fused, W follows B at once and takes the `rest` of the fused duration, the gradient
    leaves at its end, and the memory rises by `rise` only.
    """

    backward: int
    weight: int
    split: int
    rest: int
    rise: int


class Life(NamedTuple):
    """The tasks of one stage and micro-batch in the order they run: F, B, W or F, BW.

    `levels` is the memory they hold: nothing before the first, then what is held after each.
    """

    tasks: tuple[int, ...]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class Tasks:
    """All operations of a problem, in an order that respects their dependencies, with integer costs.

    Task i runs `operations[i]` on `devices[i]` for `durations[i]` ticks (the least, where `fusions` leave a choice),
    needs `rises[i]` more memory than is held before it and changes what is held by `changes[i]`; device d has room for
    `rooms[d]` (None: unlimited). Task j starts at least `lag` ticks after task i < j for each arc (i, j, lag). Times
    are `exact` multiples of `tick` time units, or rounded down, as are memories: then the tasks are a relaxation of the
    problem, and so still bound it from below.
    `covers` is False when the problem allows operations the tasks do not have (overlapped pairs that save time).
    """

    problem: Problem
    tick: float
    exact: bool
    covers: bool
    operations: tuple[Operation, ...]
    devices: tuple[int, ...]
    durations: tuple[int, ...]
    rises: tuple[int, ...]
    changes: tuple[int, ...]
    rooms: tuple[int | None, ...]
    arcs: tuple[tuple[int, int, int], ...]
    fusions: tuple[Fusion, ...]

    @cached_property
    def index(self) -> dict[Operation, int]:
        """The task of each operation."""
        return {operation: task for task, operation in enumerate(self.operations)}

    @cached_property
    def on_device(self) -> tuple[tuple[int, ...], ...]:
        """The tasks of each device."""
        held: list[list[int]] = [[] for _ in range(self.problem.devices)]
        for task, device in enumerate(self.devices):
            held[device].append(task)
        return tuple(map(tuple, held))

    @cached_property
    def lives(self) -> tuple[tuple[Life, ...], ...]:
        """For each device, the lives of its stages and micro-batches."""
        grouped: dict[tuple[int, int, int], list[int]] = {}
        for task, (_, stage, microbatch) in enumerate(self.operations):
            grouped.setdefault((self.devices[task], stage, microbatch), []).append(task)
        held: list[list[Life]] = [[] for _ in range(self.problem.devices)]
        for (device, _, _), members in grouped.items():
            levels = itertools.accumulate((self.changes[task] for task in members), initial=0)
            held[device].append(Life(tuple(members), tuple(levels)))
        return tuple(map(tuple, held))

    @cached_property
    def raising(self) -> tuple[tuple[tuple[int, int, Life], ...], ...]:
        """For each device, the tasks that raise the memory, with the level of their life then, and the life.

        A backward that may be fused counts as if it were: it need not raise the memory more.
        """
        rises = list(self.rises)
        for fusion in self.fusions:
            rises[fusion.backward] = min(fusion.rise, rises[fusion.backward])
        return tuple(
            tuple(
                (task, level + rises[task], life)
                for life in lives
                for task, level in zip(life.tasks, life.levels, strict=False)
                if rises[task] > 0
            )
            for lives in self.lives
        )

    @cached_property
    def closure(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For every task, bit masks of the tasks of its device that come before it, and after it, in every schedule.

        A path of dependencies connects them, through any device.
        """
        ancestors = [0] * len(self.operations)
        for first, second, _ in sorted(self.arcs, key=lambda arc: arc[1]):
            ancestors[second] |= ancestors[first] | 1 << first
        own = [sum(1 << task for task in members) for members in self.on_device]
        before = [mask & own[device] for mask, device in zip(ancestors, self.devices, strict=True)]
        after = [0] * len(self.operations)
        for task, mask in enumerate(before):
            for earlier in bits(mask):
                after[earlier] |= 1 << task
        return tuple(before), tuple(after)

    @cached_property
    def pinned(self) -> frozenset[int]:
        """First tasks of devices that start at their earliest time in every schedule.

        With identical micro-batches in one direction, a device starts with the first forward of its lowest stage,
        and that has nothing to wait for but first forwards of other devices.
        """
        problem = self.problem
        if not problem.identical_microbatches or problem.placement.bidirectional:
            return frozenset()
        pinned: set[int] = set()
        seen: set[int] = set()
        for stage, device in enumerate(problem.placement.down):
            if device in seen:
                break
            seen.add(device)
            pinned.add(self.index[Operation("F", stage, 0)])
        return frozenset(pinned)

    def gradient_arcs(self, backward: int) -> list[tuple[int, int]]:
        """(j, lag) for the tasks j that wait for the gradient that a B sends to another stage."""
        stage = self.operations[backward].stage
        return [
            (second, lag)
            for first, second, lag in self.arcs
            if first == backward and self.operations[second].stage != stage
        ]

    def ticks_up(self, value: float) -> int:
        """A time in ticks, rounded up, but for what is rounding error."""
        return math.ceil(value / self.tick * (1 - 1e-12) - 1e-6)

    def orders(self, schedule: Schedule) -> list[list[int]]:
        """The tasks of each device in the order of a valid schedule, identical micro-batches renumbered in order.

        What the schedule does otherwise than the tasks can is replaced by what is as good: a fused backward that saves
        nothing by B and W, B and W by a fused backward that costs no more than B, an overlapped pair by its parts.
        """
        orders: list[list[int]] = []
        for order in schedule.orders:
            members = []
            for operation in itertools.chain.from_iterable(map(parts, order)):
                if operation in self.index:
                    members.append(self.index[operation])
                elif operation.kind == "BW":
                    members += [self.index[operation._replace(kind=kind)] for kind in ("B", "W")]
                elif operation.kind == "B":
                    members.append(self.index[operation._replace(kind="BW")])
            orders.append(self._renumbered(members))
        return orders

    def _renumbered(self, members: list[int]) -> list[int]:
        """Tasks of one device, with those of a kind and stage exchanged so that they are in the order of their numbers.

        Only kinds that the arcs keep in this order are concerned.
        """
        if not self.problem.identical_microbatches:
            return members
        loose = {fusion.weight for fusion in self.fusions}
        chains: dict[tuple[str, int, bool], list[int]] = {}
        for task in members:
            chains.setdefault(self._lane(task), []).append(task)
        following = {lane: iter(sorted(chain)) for lane, chain in chains.items()}
        return [task if task in loose else next(following[self._lane(task)]) for task in members]

    def _lane(self, task: int) -> tuple[str, int, bool]:
        """Kind, stage and direction of a task."""
        kind, stage, microbatch = self.operations[task]
        return kind, stage, self.problem.placement.goes_up(microbatch, self.problem.microbatches)

    def schedule(self, order: Iterable[int], fused: Iterable[Fusion], method: str) -> Schedule:
        """The schedule that takes each device's tasks in the given order, with the given backwards fused."""
        replaced: dict[int, Operation | None] = {}
        for fusion in fused:
            _, stage, microbatch = self.operations[fusion.backward]
            replaced[fusion.backward] = Operation("BW", stage, microbatch)
            replaced[fusion.weight] = None
        orders: list[list[Operation]] = [[] for _ in range(self.problem.devices)]
        for task in order:
            operation = replaced.get(task, self.operations[task])
            if operation is not None:
                orders[self.devices[task]].append(operation)
        return Schedule.of(orders, method)


def tasks(problem: Problem) -> Tasks:
    """The tasks of a problem, with identical micro-batches in number order at every stage.

    The order loses nothing: sorting the starts of a stage keeps every dependency and the memory (per direction in a
    bidirectional placement). Where backwards may be fused one by one, their W keep no order.
    """
    operations: list[Operation] = []
    fusible: list[Operation] = []
    ways = [_way(problem, stage) for stage in range(problem.stages)]
    m = problem.microbatches
    for microbatch in range(m):
        operations.extend(Operation("F", stage, microbatch) for stage in range(problem.stages))
        way_back = list(enumerate(ways))[::-1]
        operations.extend(Operation("BW" if way == "fused" else "B", stage, microbatch) for stage, way in way_back)
        operations.extend(Operation("W", stage, microbatch) for stage, way in way_back if way != "fused")
        fusible.extend(Operation("B", stage, microbatch) for stage, way in way_back if way == "either")
    index = {operation: task for task, operation in enumerate(operations)}
    transfers = {}
    for operation in operations:
        for need in inputs(operation, problem.stages):
            made = need if need in index else Operation("BW", need.stage, need.microbatch)
            transfers[made, operation] = problem.transfer(
                problem.device(made), problem.device(operation), min(made.stage, operation.stage), made.microbatch
            )
    costs = {operation: problem.duration(operation) for operation in operations}
    whole = {operation: problem.duration(operation._replace(kind="BW")) for operation in fusible}
    tick, exact = _tick([*costs.values(), *transfers.values(), *whole.values()])

    def ticks(value: float) -> int:
        return round(value / tick) if exact else math.floor(value / tick)

    durations = [ticks(costs[operation]) for operation in operations]
    memory, rooms = _memories(problem)
    rises, changes = zip(*map(memory, operations), strict=True)
    fusions = []
    for operation in fusible:
        backward, weight = index[operation], index[operation._replace(kind="W")]
        rest = max(0, ticks(whole[operation]) - durations[backward])
        rise, _ = memory(operation._replace(kind="BW"))
        fusions.append(Fusion(backward, weight, durations[weight], rest, rise))
        durations[weight] = min(durations[weight], rest)
    arcs = [
        (index[made], index[operation], durations[index[made]] + ticks(transfer))
        for (made, operation), transfer in transfers.items()
    ]
    if problem.identical_microbatches:
        for operation in operations:
            kind, stage, microbatch = operation
            after = index.get(operation._replace(microbatch=microbatch + 1))
            turns = problem.placement.goes_up(microbatch, m) != problem.placement.goes_up(microbatch + 1, m)
            if after is not None and not turns and not (kind == "W" and ways[stage] == "either"):
                arcs.append((index[operation], after, durations[index[operation]]))
    return Tasks(
        problem=problem,
        tick=tick,
        exact=exact,
        covers=not problem.pairs_pay,
        operations=tuple(operations),
        devices=tuple(map(problem.device, operations)),
        durations=tuple(durations),
        rises=rises,
        changes=changes,
        rooms=rooms,
        arcs=tuple(sorted(arcs)),
        fusions=tuple(fusions),
    )


def _way(problem: Problem, stage: int) -> str:
    """How the backwards of a stage run: "split", "fused", or "either" where the choice can matter.

    B, then W at once, does all that BW does where BW takes no less time than both and B holds no more memory than F.
    BW does all that B and W do where it takes no more time than B alone.
    """
    if problem.backward != "any":
        return problem.backward
    costs = problem.profile.stages[stage]
    if costs.fused <= costs.backward_input:
        return "fused"
    capped = any(not math.isinf(problem.caps[owner]) for owner in _owners(problem, stage))
    rises = costs.memory.backward_input > 0 and capped
    return "either" if rises or costs.fused < costs.backward_input + costs.backward_weight else "split"


def _owners(problem: Problem, stage: int) -> Iterator[int]:
    for owners in filter(None, (problem.placement.down, problem.placement.up)):
        yield owners[stage]


def _tick(values: Iterable[float]) -> tuple[float, bool]:
    """The largest time that all values are multiples of, and True; or a fine enough tick, and False."""
    distinct = {value for value in values if value > 0}
    fractions = {value: Fraction(value).limit_denominator(10**6) for value in distinct}
    if not distinct:
        return 1.0, True
    denominator = math.lcm(*(fraction.denominator for fraction in fractions.values()))
    numerator = math.gcd(*(int(fraction * denominator) for fraction in fractions.values()))
    tick = numerator / denominator
    near = all(abs(float(fraction) - value) <= 1e-12 * value for value, fraction in fractions.items())
    if near and max(distinct) / tick <= FINEST:
        return tick, True
    return max(distinct) / FINEST, False


def _memories(problem: Problem) -> tuple[Callable[[Operation], tuple[int, int]], tuple[int | None, ...]]:
    """What the held memory rises by at an operation, and changes by, and the room of every device, in integer units.

    What a stage holds after F, during B, during BW and after B is rounded down where it is not a multiple of the unit.
    """

    def costs_of(operation: Operation) -> tuple[int, float, bool]:
        _, stage, microbatch = operation
        return stage, problem.factor(microbatch), problem.recomputes(stage, microbatch)

    held: dict[tuple[int, float, bool], tuple[float, ...]] = {}
    for stage in range(problem.stages):
        for microbatch in range(problem.microbatches):
            forward, split, fused = (problem.cost(Operation(kind, stage, microbatch)) for kind in ("F", "B", "BW"))
            begun = forward.change
            levels = (begun, begun + split.rise, begun + fused.rise, begun + split.change)
            held[costs_of(Operation("F", stage, microbatch))] = levels
    unit, exact = _tick([abs(level) for levels in held.values() for level in levels])

    def units(level: float) -> int:
        return max(0, round(level / unit) if exact else math.floor(level / unit))

    def memory(operation: Operation) -> tuple[int, int]:
        begun, split, fused, left = map(units, held[costs_of(operation)])
        return {
            "F": (begun, begun),
            "B": (split - begun, left - begun),
            "W": (0, -left),
            "BW": (fused - begun, -begun),
        }[operation.kind]

    rooms = [
        None if math.isinf(cap) else math.floor((cap * (1 + 1e-9) + 1e-12 - static) / unit * (1 + 1e-12) + 1e-9)
        for cap, static in zip(problem.caps, problem.static_memory, strict=True)
    ]
    return memory, tuple(rooms)


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits set in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
