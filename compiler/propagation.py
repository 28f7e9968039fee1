"""Propagation: what follows for the start of every operation from a limit on the value, until nothing is left.

This is what checks a bound by propagation. It knows nothing of how the bound was found: it narrows the windows of all
start times by the rules below, one function each. The claim holds when a window is empty, or a cap cannot be kept.

The witness may name orders of two operations of a device. Each is taken as given only once the rules have refuted its
opposite (shaving: Martin and Shmoys 1996).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

from .errors import CertificateError
from .operation import Operation
from .problem import Problem
from .relaxation import room
from .route import Clock, prepared
from .simulation import inputs

ROUNDS = 500
"""How often the rules are applied in a row: where windows still change then, they creep by single ticks."""


class Contradiction(Exception):
    """No schedule meets the limit."""


def applicable(problem: Problem) -> bool:
    """True when no backward has a choice between split and fused that matters, and no overlapped pair saves time."""
    return not problem.pairs_pay and all(_backwards(problem, stage) for stage in range(problem.stages))


def contradicted(
    problem: Problem,
    claim: float,
    orders: Iterable[tuple[Operation, Operation]],
    steps: int,
    deadline: float | None = None,
) -> bool:
    """True when the rules leave no value below `claim`, with the orders (first, second) that they prove on the way.

    Raises CertificateError where propagation does not apply, an order is not proved or is none, and when more than
    `steps` looks at an operation would be needed or the `deadline` (time.monotonic) comes before.
    """
    if not applicable(problem):
        raise CertificateError("propagation knows no backwards that may be split or fused, and no overlapped pairs")
    clock, _ = prepared(problem)
    model = _model(problem, clock)
    allowance = _Allowance(steps, deadline)
    try:
        windows = _Windows.of(model, clock.ticks(claim) - 1)
        windows.settle(allowance)
        for first, second in orders:
            i, j = model.index.get(first), model.index.get(second)
            if i is None or j is None or i == j or model.devices[i] != model.devices[j]:
                raise CertificateError(f"the witness orders {first} and {second}, which do not share a device")
            opposite = windows.copy()
            try:
                opposite.order(j, i)
                opposite.settle(allowance)
            except Contradiction:
                windows.order(i, j)
                windows.settle(allowance)
            else:
                raise CertificateError(f"nothing says that {first} has to run before {second}")
    except Contradiction:
        return True
    return False


@dataclass
class _Allowance:
    """How many operations may still be looked at, and until when."""

    steps: int
    deadline: float | None

    def take(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0 or (self.deadline is not None and time.monotonic() > self.deadline):
            raise CertificateError("the certificate takes too long to check")


@dataclass(frozen=True)
class _Life:
    """The operations of one stage and micro-batch on a device, in order, and the memory held before and after each."""

    members: tuple[int, ...]
    levels: tuple[float, ...]


@dataclass(frozen=True)
class _Model:
    """A problem in whole ticks, rounded down; operations are numbers that ascend along all dependencies."""

    span: bool
    index: dict[Operation, int]
    devices: tuple[int, ...]
    durations: tuple[int, ...]
    rises: tuple[float, ...]
    arcs: tuple[tuple[int, int, int], ...]
    """(i, j, lag): j starts at least lag after i."""
    lives: tuple[tuple[_Life, ...], ...]
    """By device."""
    rooms: tuple[float, ...]
    pinned: tuple[int, ...]
    """Operations that start as soon as their inputs are there."""
    horizon: int
    """No operation ends later, in any schedule executed as early as possible."""
    members: tuple[tuple[int, ...], ...] = field(init=False)
    """The operations of every device."""

    def __post_init__(self) -> None:
        held: list[list[int]] = [[] for _ in self.rooms]
        for i, device in enumerate(self.devices):
            held[device].append(i)
        object.__setattr__(self, "members", tuple(map(tuple, held)))


def _model(problem: Problem, clock: Clock) -> _Model:
    """Identical micro-batches of one direction pass every stage in number order: sorting their starts loses nothing."""
    m, stages, placement = problem.microbatches, problem.stages, problem.placement
    ways = [_backwards(problem, stage) for stage in range(stages)]
    index: dict[Operation, int] = {}
    lives: list[list[_Life]] = [[] for _ in range(problem.devices)]
    for j in range(m):
        order = [Operation("F", s, j) for s in range(stages)]
        order += [Operation(ways[s][0], s, j) for s in reversed(range(stages))]
        order += [Operation(kind, s, j) for s in range(stages) for kind in ways[s][1:]]
        for operation in order:
            index[operation] = len(index)
        for s in range(stages):
            own = [Operation(kind, s, j) for kind in ("F", *ways[s])]
            levels = accumulate((problem.memory(operation)[1] for operation in own), initial=0.0)
            lives[problem.device(own[0])].append(_Life(tuple(index[o] for o in own), tuple(levels)))

    def ticks(value: float) -> int:
        return clock.down(Fraction(repr(float(value))))

    durations = tuple(ticks(problem.duration(operation)) for operation in index)
    arcs, transfers = [], 0
    for operation, i in index.items():
        for need in inputs(operation, stages):
            made = need if need in index else need._replace(kind="BW")
            boundary = min(made.stage, operation.stage)
            way = ticks(
                problem.transfer(problem.device(made), problem.device(operation), boundary, operation.microbatch)
            )
            transfers += way + 1
            arcs.append((index[made], i, durations[index[made]] + way))
        following = operation._replace(microbatch=operation.microbatch + 1)
        same_way = placement.goes_up(operation.microbatch, m) == placement.goes_up(following.microbatch, m)
        if problem.identical_microbatches and following in index and same_way:
            arcs.append((i, index[following], durations[i]))
    return _Model(
        span=problem.objective == "span",
        index=index,
        devices=tuple(map(problem.device, index)),
        durations=durations,
        rises=tuple(problem.memory(operation)[0] for operation in index),
        arcs=tuple(sorted(arcs)),
        lives=tuple(map(tuple, lives)),
        rooms=tuple(room(problem, device) for device in range(problem.devices)),
        pinned=tuple(index[Operation("F", stage, 0)] for stage in _first_stages(problem)),
        horizon=sum(durations) + len(durations) + transfers,
    )


def _backwards(problem: Problem, stage: int) -> tuple[str, ...]:
    """How a stage runs its backwards, ("B", "W") or ("BW",); () where the choice can matter.

    B, then W at once, does all that BW does where BW takes no less time than both and B does not rise more.
    """
    if problem.backward != "any":
        return ("BW",) if problem.backward == "fused" else ("B", "W")
    for costs in problem.costs:
        b, w, bw = (costs[kind][stage] for kind in ("B", "W", "BW"))
        if bw.duration < b.duration + w.duration or b.rise > bw.rise:
            return ()
    return ("B", "W")


def _first_stages(problem: Problem) -> Iterator[int]:
    """Stages whose first forward starts as soon as its input is there: it is the first thing that its device can do."""
    if problem.identical_microbatches and not problem.placement.bidirectional:
        seen: set[int] = set()
        for stage, device in enumerate(problem.placement.down):
            if device in seen:
                return
            seen.add(device)
            yield stage


@dataclass
class _Windows:
    """Earliest and latest starts, and for every operation (as bits) what runs before and after it on its device."""

    model: _Model
    limit: int
    earliest: list[int]
    latest: list[int]
    before: list[int]
    after: list[int]

    @staticmethod
    def of(model: _Model, limit: int) -> _Windows:
        """What dependencies alone say."""
        ancestors = [0] * len(model.devices)
        for first, second, _ in sorted(model.arcs, key=lambda arc: arc[1]):
            ancestors[second] |= ancestors[first] | 1 << first
        own = [sum(1 << i for i in members) for members in model.members]
        before = [mask & own[device] for mask, device in zip(ancestors, model.devices, strict=True)]
        after = [0] * len(before)
        for i, mask in enumerate(before):
            for earlier in _bits(mask):
                after[earlier] |= 1 << i
        end = model.horizon if model.span else limit
        return _Windows(model, limit, [0] * len(before), [end - d for d in model.durations], before, after)

    def copy(self) -> _Windows:
        return _Windows(self.model, self.limit, self.earliest[:], self.latest[:], self.before[:], self.after[:])

    def order(self, first: int, second: int) -> None:
        """One operation runs before another, and so does all before the one before all after the other."""
        if self.before[first] >> second & 1:
            raise Contradiction
        if self.before[second] >> first & 1:
            return
        firsts, seconds = self.before[first] | 1 << first, self.after[second] | 1 << second
        for i in _bits(seconds):
            self.before[i] |= firsts
        for i in _bits(firsts):
            self.after[i] |= seconds

    def settle(self, allowance: _Allowance) -> None:
        """Apply all rules until nothing changes any more. Raises Contradiction when a window is empty."""
        seen: dict[int, tuple[list[int], ...]] = {}
        for _ in range(ROUNDS):
            begun = (self.earliest[:], self.latest[:], self.before[:])
            self.dependencies()
            if self.model.span:
                self.extents()
            for device, members in enumerate(self.model.members):
                state = tuple([values[i] for i in members] for values in (self.earliest, self.latest, self.before))
                if seen.get(device) != state:
                    allowance.take(len(members))
                    seen[device] = state
                    self.disjunctions(members)
                    self.loads(members)
                    if not math.isinf(self.model.rooms[device]):
                        self.memory(device)
            if any(map(int.__gt__, self.earliest, self.latest)):
                raise Contradiction
            if begun == (self.earliest, self.latest, self.before):
                return

    def dependencies(self) -> None:
        """start_j >= start_i + lag for every arc (i, j, lag); what is pinned starts as early as that allows."""
        earliest, latest = self.earliest, self.latest
        for i, j, lag in self.model.arcs:
            earliest[j] = max(earliest[j], earliest[i] + lag)
        for i, j, lag in reversed(self.model.arcs):
            latest[i] = min(latest[i], latest[j] - lag)
        for i in self.model.pinned:
            latest[i] = min(latest[i], earliest[i])

    def extents(self) -> None:
        """end_i - start_j <= limit for any two operations of a device."""
        durations, earliest, latest = self.model.durations, self.earliest, self.latest
        for members in self.model.members:
            begin = max(earliest[i] + durations[i] for i in members) - self.limit
            end = min(latest[i] for i in members) + self.limit
            for i in members:
                earliest[i] = max(earliest[i], begin)
                latest[i] = min(latest[i], end - durations[i])

    def disjunctions(self, members: tuple[int, ...]) -> None:
        """i runs before j where the earliest end of j is after the latest start of i."""
        for j in members:
            end, known = self.earliest[j] + self.model.durations[j], self.before[j] | self.after[j] | 1 << j
            for i in members:
                if self.latest[i] < end and not known >> i & 1:
                    self.order(i, j)

    def loads(self, members: tuple[int, ...]) -> None:
        """start_i >= the least start of P + all durations of P, for any P that runs before i; and so backwards."""
        durations, earliest, latest = self.model.durations, self.earliest, self.latest
        for i, clock in _busy_until([(earliest[i], durations[i], i) for i in members], self.before).items():
            earliest[i] = max(earliest[i], clock)
        turned = [(-latest[i] - durations[i], durations[i], i) for i in members]
        for i, clock in _busy_until(turned, self.after).items():
            latest[i] = min(latest[i], -clock - durations[i])

    def memory(self, device: int) -> None:
        """Where k raises the memory: rise_k + sum over lives of the memory held before k <= room.

        A life has done by then at least what is known to be before k, and at most what is not known to be after it.
        Where the least that this leaves is too much, no schedule is left; where one more operation on one side of k
        makes it too much, that is on the other side; and k waits until enough can have been freed.
        """
        for k in self.model.members[device]:
            if self.model.rises[k] > 0:
                self.fit(k, self.model.rises[k], device)

    def fit(self, k: int, rise: float, device: int) -> None:
        before, after, room = self.before[k], self.after[k], self.model.rooms[device]
        least_held = held = rise
        loose = []
        for life in self.model.lives[device]:
            if k in life.members:
                level = life.levels[life.members.index(k)]
                least_held, held = least_held + level, held + level
                continue
            done = sum(before >> i & 1 for i in life.members)
            most = len(life.members) - sum(after >> i & 1 for i in life.members)
            lowest = min(life.levels[done : most + 1])
            least_held, held = least_held + lowest, held + life.levels[done]
            if done < most:
                loose.append((life, done, most, lowest))
        if least_held > room:
            raise Contradiction
        for life, done, most, lowest in loose:
            allowed = lowest + room - least_held
            for cut in range(done, most):
                if min(life.levels[done : cut + 1]) > allowed:
                    self.order(life.members[cut], k)
                elif min(life.levels[cut + 1 : most + 1]) > allowed:
                    self.order(k, life.members[cut])
        if held > room:
            freed = []
            for life, done, most, _ in loose:
                level = life.levels[done]
                for member, after_it in zip(life.members[done:most], life.levels[done + 1 : most + 1], strict=True):
                    if after_it < level:
                        end = self.earliest[member] + self.model.durations[member]
                        freed.append((end, level - after_it))
                        level = after_it
            for end, amount in sorted(freed):
                held -= amount
                if held <= room:
                    self.earliest[k] = max(self.earliest[k], end)
                    break


def _busy_until(tasks: list[tuple[int, int, int]], before: list[int]) -> dict[int, int]:
    """For every task (start, duration, number) of a device, when the tasks before it can all be done, one by one."""
    done = {}
    tasks.sort()
    for _, _, i in tasks:
        mask, clock = before[i], -(10**30)
        for start, duration, other in tasks:
            if mask >> other & 1:
                clock = max(clock, start) + duration
        done[i] = clock
    return done


def _bits(mask: int) -> Iterator[int]:
    """The numbers of the bits set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
