"""V-Half and V-Min (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): V schedules of less memory.

Both repeat a stable pattern of six unit slots per micro-batch. Weight gradients fill what is free; then the forwards of
the warm-up and everything of the cool-down are squeezed: moved to the earliest free slot that does not raise the peak.
Costs are ignored: only the order is taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from ..errors import InputError
from ..operation import Operation
from ..placement import v
from ..problem import Problem
from ..schedule import Schedule
from .common import refuse_fused

PERIOD = 6
"""Slots per micro-batch: F, B and W of two chunks, each one unit."""

# The four passes of a micro-batch over a device, in the order of the V: F down, F up, B down, B up.
_Passes = list[list[int]]


def v_half(problem: Problem) -> Schedule:
    """Holds about half of what 1F1B holds: p/2 + 1 micro-batches. Needs a v placement of two chunks."""
    p = problem.devices
    shift = 3 if p % 2 == 0 else 0
    return _controllable(
        problem,
        "v-half",
        lambda r: (2 * r, 3 * p - r - 2, 3 * p + shift + 2 * r - 1, 6 * p + shift - r - 2),
    )


def v_min(problem: Problem) -> Schedule:
    """Holds about a third of what 1F1B holds: (p + 4) // 3 micro-batches. Needs a v placement of two chunks."""
    p = problem.devices
    shift = 2 if p % 3 == 0 else 0
    return _controllable(problem, "v-min", lambda r: (r, 2 * p - r - 1, 2 * p + shift + r, 4 * p + shift - r - 1))


def _controllable(problem: Problem, name: str, pattern: Callable[[int], tuple[int, int, int, int]]) -> Schedule:
    refuse_fused(problem, name)
    p, m = problem.devices, problem.microbatches
    if problem.placement.down != v(p).down or problem.placement.bidirectional:
        raise InputError(f"{name} needs a v placement of two chunks, not {problem.placement}", hint="use --placement v")
    devices = [[list(range(first, first + PERIOD * m, PERIOD)) for first in pattern(r)] for r in range(p)]
    devices = _squeeze([[*passes, _weights(passes)] for passes in devices], warm_up=True)
    devices = _squeeze([passes[:4] for passes in devices], warm_up=False)
    return Schedule.of((_order(r, p, passes) for r, passes in enumerate(devices)), name)


def _free_slots(passes: _Passes) -> tuple[list[int], list[int]]:
    """By slot up to the last pass: how many backwards end there, and whether it is free (1) or taken (0)."""
    length = max(map(max, passes)) + 1
    backwards, free = [0] * length, [1] * length
    for kind, slots in enumerate(passes):
        for slot in slots:
            free[slot] = 0
            backwards[slot] = int(kind in (2, 3))
    return backwards, free


def _weights(passes: _Passes) -> list[int]:
    """The slots of the weight gradients: each free slot after a backward takes one, those left over follow the end."""
    backwards, free = _free_slots(passes[:4])
    slots, pending = [], 0
    for slot, is_free in enumerate(free):
        pending += backwards[slot]
        if is_free and pending:
            slots.append(slot)
            pending -= 1
    return slots + list(range(len(free), len(free) + pending))


def _peak(passes: _Passes) -> int:
    """The most chunk activations held, each from its forward to its weight gradient, explicit or filled in."""
    changes = [0] * (max(map(max, passes)) + 1)
    for slot in chain(passes[0], passes[1]):
        changes[slot] = 1
    for slot in passes[4] if len(passes) > 4 else _weights(passes):
        if slot < len(changes):
            changes[slot] = -1
    held = peak = 0
    for change in changes:
        held += change
        peak = max(peak, held)
    return peak


def _squeeze(devices: list[_Passes], *, warm_up: bool) -> list[_Passes]:
    """Move warm-up (if asked) and cool-down passes to earlier free slots, where the peak stays what it is, and start
    every pass as early as its inputs allow.

    The steady state, from the first micro-batch's return to device 0 until the last one's entry, keeps its slots.
    """
    limit = max(map(_peak, devices))
    last = len(devices[0][0]) - 1
    taken: list[set[int]] = [set() for _ in devices]
    events = sorted(
        (slot, device, kind, number)
        for device, passes in enumerate(devices)
        for kind, slots in enumerate(passes)
        for number, slot in enumerate(slots)
    )
    phase = "warm-up"
    for slot, device, kind, number in events:
        if phase == "warm-up" and (device, kind) == (0, 3):
            phase = "steady"
        if phase == "steady" and (kind, number) == (0, last):
            phase = "cool-down"
            taken[device].add(slot)
            continue
        if phase == "steady" or (phase == "warm-up" and not warm_up):
            taken[device].add(slot)
            continue
        slots = devices[device][kind]
        for earlier in range(_earliest(devices, device, kind, number), slot):
            if earlier not in taken[device]:
                slots[number] = earlier
                if _peak(devices[device]) <= limit:
                    break
        else:
            slots[number] = slot
        taken[device].add(slots[number])
    filled = [passes if len(passes) > 4 else [*passes, _weights(passes)] for passes in devices]
    return _packed(filled)


def _earliest(devices: list[_Passes], device: int, kind: int, number: int) -> int:
    """The first slot after everything that a pass needs."""
    needs = [-1]
    passes = devices[device]
    if kind in (0, 2) and device > 0:
        needs.append(devices[device - 1][kind][number])
    if kind in (1, 3) and device + 1 < len(devices):
        needs.append(devices[device + 1][kind][number])
    if kind in (1, 2, 3):
        needs.append(passes[kind - 1][number])
    if kind == 4:
        needs.append(sorted(passes[2] + passes[3])[number])
    if number > 0:
        needs.append(passes[kind][number - 1])
    return max(needs) + 1


def _packed(devices: list[_Passes]) -> list[_Passes]:
    """The same orders with every unit pass as early as its inputs and its device allow."""
    packed = [[[0] * len(slots) for slots in passes] for passes in devices]
    clock = [-1] * len(devices)
    events = sorted(
        (slot, device, kind, number)
        for device, passes in enumerate(devices)
        for kind, slots in enumerate(passes)
        for number, slot in enumerate(slots)
    )
    for _, device, kind, number in events:
        start = max(clock[device] + 1, _earliest(packed, device, kind, number) if kind < 4 else 0)
        packed[device][kind][number] = clock[device] = start
    return packed


def _order(device: int, p: int, passes: _Passes) -> list[Operation]:
    """The order of a device: weight gradients go into free slots, those of the first backward leg first."""
    near, far = device, 2 * p - 1 - device
    at: dict[int, Operation] = {}
    for kind, stage, slots in zip("FFBB", (near, far, far, near), passes, strict=False):
        at.update({slot: Operation(kind, stage, number) for number, slot in enumerate(slots)})
    order: list[Operation] = []
    pending: dict[int, list[int]] = {far: [], near: []}

    def weight() -> bool:
        for stage, microbatches in pending.items():
            if microbatches:
                order.append(Operation("W", stage, microbatches.pop(0)))
                return True
        return False

    for slot in range(max(at) + 1):
        operation = at.get(slot)
        if operation is None:
            weight()
            continue
        order.append(operation)
        if operation.kind == "B":
            pending[operation.stage].append(operation.microbatch)
    while weight():
        pass
    return order
