"""Interleaved schedules over several chunks per device: depth-first and breadth-first."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ..errors import InputError
from ..operation import Operation
from ..problem import Problem
from ..schedule import Schedule
from .classic import gpipe
from .common import backward, forward


def interleaved(problem: Problem, *, group_size: int | None = None) -> Schedule:
    """Depth-first interleaved 1F1B (Narayanan et al. 2021, section 2.2; Megatron-LM).

    Groups of g micro-batches pass through one chunk after another. Device r starts with 2(p - r - 1) + (v - 1) g
    forwards, then takes a forward and a backward in turn. By default there are m // p groups, as equal as can be, so
    that g = p where p divides m; with a given `group_size` the last group may be smaller. Where a group is smaller
    than p - 1, the first term is held to 2g: more would deadlock. Needs the loop placement.
    """
    _require_loop(problem, "interleaved")
    p, m = problem.devices, problem.microbatches
    groups = _groups(p, m, group_size)
    chunks = problem.stages // p
    visits = [(chunk, microbatch) for group in groups for chunk in range(chunks) for microbatch in group]
    returns = [(chunk, microbatch) for group in groups for chunk in reversed(range(chunks)) for microbatch in group]
    smallest = min(map(len, groups))
    orders = []
    for device in range(p):
        ahead = min(2 * (p - device - 1), 2 * smallest) + (chunks - 1) * len(groups[0])
        warm_up = min(len(visits), ahead)
        order: list[Operation] = [forward(chunk * p + device, j) for chunk, j in visits[:warm_up]]
        for number, (chunk, microbatch) in enumerate(returns):
            if number + warm_up < len(visits):
                entering, j = visits[number + warm_up]
                order.append(forward(entering * p + device, j))
            order.extend(backward(problem, chunk * p + device, microbatch))
        orders.append(order)
    return Schedule.of(orders, "interleaved")


def interleaved_breadth_first(problem: Problem) -> Schedule:
    """All micro-batches through one chunk before the next, both ways (Lamy-Poirier 2022). Needs the loop placement."""
    _require_loop(problem, "interleaved-bfs")
    return replace(gpipe(problem), method="interleaved-bfs")


def _require_loop(problem: Problem, name: str) -> None:
    p = problem.devices
    if problem.placement.down != tuple(range(p)) * (problem.stages // p) or problem.placement.bidirectional:
        raise InputError(f"{name} needs a loop placement, not {problem.placement}", hint="use --placement loop")


def _groups(devices: int, microbatches: int, size: int | None) -> list[range]:
    if size is not None:
        if size < 1:
            raise InputError(f"the group size must be at least 1, not {size}")
        return [range(first, min(first + size, microbatches)) for first in range(0, microbatches, size)]
    rounds = max(1, microbatches // devices)
    ends = [-(-microbatches * number // rounds) for number in range(rounds + 1)]
    return [range(first, last) for first, last in pairwise(ends)]
