"""Wave and Chimera: what a device has ready it executes, backwards first, with a limit on what is under way.

Both are drawn in their papers for equal costs; here the rule behind the drawing runs on the measured costs.
"""

from __future__ import annotations

import heapq

from ..errors import InputError
from ..operation import Operation
from ..placement import v
from ..problem import Problem
from ..schedule import Schedule
from ..simulation import inputs
from .common import backward


def wave(problem: Problem) -> Schedule:
    """Hanayo (Liu et al. 2023, section 3): waves over a V of an even number of chunks, p micro-batches under way."""
    placement = problem.placement
    chunks = problem.stages // problem.devices
    if placement.bidirectional or chunks % 2 or placement.down != v(problem.devices, chunks).down:
        raise InputError(
            f"wave needs a v placement of an even number of chunks, not {placement}", hint="use --placement v"
        )
    return _eager(problem, "wave", problem.devices)


def chimera(problem: Problem) -> Schedule:
    """Chimera (Li and Hoefler 2021, section 3): 1F1B in both directions, p/2 micro-batches of each under way."""
    if not problem.placement.bidirectional:
        raise InputError(
            f"chimera needs a bidirectional placement, not {problem.placement}", hint="use --placement bidirectional"
        )
    return _eager(problem, "chimera", (problem.devices + 1) // 2)


def _eager(problem: Problem, name: str, limit: int) -> Schedule:
    """Each device executes what it has ready: backwards before forwards, of these the deepest stage first.

    A direction admits a micro-batch while fewer than `limit` of it have entered and not returned.
    """
    m, stages = problem.microbatches, problem.stages
    orders: list[list[Operation]] = [[] for _ in range(problem.devices)]
    ready: list[list[tuple[bool, int, int, Operation]]] = [[] for _ in range(problem.devices)]
    free = [0.0] * problem.devices
    ends: dict[Operation, float] = {}
    events: list[tuple[float, int, Operation]] = []  # (when its inputs are there, device, F or B)
    wakes: list[tuple[float, int]] = [(0.0, 0)]  # (when, device): a device becomes free

    def offer(operation: Operation) -> None:
        """Queue an operation whose inputs are all made, for the time when they have arrived."""
        device, arrival = problem.device(operation), 0.0
        for need in inputs(operation, stages):
            boundary = min(need.stage, operation.stage)
            transfer = problem.transfer(problem.device(need), device, boundary, need.microbatch)
            arrival = max(arrival, ends[need] + transfer)
        heapq.heappush(events, (arrival, device, operation))

    waiting = [[j for j in range(m) if problem.placement.goes_up(j, m) == up] for up in (False, True)]
    for direction in waiting:
        for microbatch in direction[:limit]:
            offer(Operation("F", 0, microbatch))
        del direction[:limit]
    while events or wakes:
        now = min(queue[0][0] for queue in (events, wakes) if queue)
        touched = set()
        while wakes and wakes[0][0] == now:
            touched.add(heapq.heappop(wakes)[1])
        while events and events[0][0] == now:
            _, device, operation = heapq.heappop(events)
            is_forward = operation.kind == "F"
            depth = -operation.stage if is_forward else operation.stage
            heapq.heappush(ready[device], (is_forward, depth, operation.microbatch, operation))
            touched.add(device)
        for device in sorted(touched):
            if free[device] > now or not ready[device]:
                continue
            operation = heapq.heappop(ready[device])[-1]
            kind, stage, microbatch = operation
            steps = backward(problem, stage, microbatch) if kind == "B" else (operation,)
            orders[device].extend(steps)
            ends[operation] = now + problem.duration(steps[0])
            free[device] = now + sum(map(problem.duration, steps))
            heapq.heappush(wakes, (free[device], device))
            if kind == "F":
                offer(
                    Operation("F", stage + 1, microbatch) if stage + 1 < stages else Operation("B", stage, microbatch)
                )
            elif stage > 0:
                offer(Operation("B", stage - 1, microbatch))
            elif direction := waiting[problem.placement.goes_up(microbatch, m)]:
                offer(Operation("F", 0, direction.pop(0)))
    return Schedule.of(orders, name)
