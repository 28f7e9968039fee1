"""Verification of orders: is a schedule a complete, executable and affordable solution of a problem?

`verify` finds every violation in one run. It knows nothing of how the schedule was made.
"""

from __future__ import annotations

from .diagnostic import Report
from .errors import InvalidScheduleError
from .operation import Operation, Pair, Step, parts
from .problem import Problem
from .schedule import Schedule
from .simulation import execute, inputs, peak_memory

_Places = dict[Operation, tuple[int, int]]


def verify(problem: Problem, schedule: Schedule, *, forward_only: bool = False) -> Report:
    """Check completeness, duplicates, ranges, placement, dependencies, deadlock and the memory caps."""
    report = Report()
    if schedule.devices != problem.devices:
        report.error(
            "device-count", f"the schedule has {schedule.devices} devices, but the problem has {problem.devices}"
        )
        return report
    places = _check_operations(problem, schedule, report, forward_only)
    _check_local_order(problem, schedule, places, report)
    if report.valid:
        _check_deadlock(problem, schedule, places, report)
    if not report.has("stage-out-of-range", "microbatch-out-of-range"):
        _check_memory(problem, schedule, report)
    return report


def require_valid(problem: Problem, schedule: Schedule) -> None:
    """Raise InvalidScheduleError unless `verify` finds nothing."""
    report = verify(problem, schedule)
    if not report.valid:
        raise InvalidScheduleError(report)


def _check_operations(problem: Problem, schedule: Schedule, report: Report, forward_only: bool) -> _Places:
    """Every operation in range, on the device that owns its stage, once; none missing; backwards as allowed."""
    places: _Places = {}
    for device, order in enumerate(schedule.orders):
        for index, step in enumerate(order):
            for operation in parts(step):
                kind, stage, microbatch = operation
                if stage >= problem.stages:
                    message = f"{operation}: there is no stage {stage}, only 0 to {problem.stages - 1}"
                    report.error("stage-out-of-range", message, device=device, operation=operation)
                elif microbatch >= problem.microbatches:
                    message = (
                        f"{operation}: micro-batch {microbatch} is out of range, there are 0 to "
                        f"{problem.microbatches - 1}"
                    )
                    report.error("microbatch-out-of-range", message, device=device, operation=operation)
                elif operation in places:
                    where = places[operation][0]
                    message = f"{operation} is executed twice, first on device {where}"
                    report.error("duplicate-operation", message, device=device, operation=operation)
                else:
                    places[operation] = (device, index)
                    owner = problem.device(operation)
                    if owner != device:
                        message = f"{operation}: stage {stage} belongs to device {owner}, not {device}"
                        report.error("wrong-device", message, device=device, operation=operation)
                    if forward_only and kind != "F":
                        message = f"{operation}: a forward-only schedule has no backwards"
                        report.error("backward-in-forward-only", message, device=device, operation=operation)
            if isinstance(step, Pair) and step.forward.microbatch == step.backward.microbatch:
                message = f"{step}: a pair overlaps different micro-batches, not twice {step.forward.microbatch}"
                report.error("bad-pair", message, device=device, operation=step)
    for stage in range(problem.stages):
        for microbatch in range(problem.microbatches):
            _check_complete(problem, places, stage, microbatch, report, forward_only)
    return places


def _check_complete(
    problem: Problem, places: _Places, stage: int, microbatch: int, report: Report, forward_only: bool
) -> None:
    """One stage and micro-batch: F once, and either BW or B and W, as the problem allows."""
    forward, split, weight, fused = (Operation(kind, stage, microbatch) for kind in ("F", "B", "W", "BW"))

    def missing(operation: Operation, what: str) -> None:
        device = problem.device(operation)
        report.error("missing-operation", f"{what} is never executed", device=device, operation=operation)

    if forward not in places:
        missing(forward, str(forward))
    if forward_only:
        return
    if fused in places:
        for other in (split, weight):
            if other in places:
                message = f"{other} repeats what the fused backward {fused} already does"
                report.error("mixed-backward", message, device=places[other][0], operation=other)
        if problem.backward == "split":
            message = f"{fused} is fused, but only split backwards (B and W) are allowed"
            report.error("backward-not-allowed", message, device=places[fused][0], operation=fused)
    elif split not in places and weight not in places:
        wanted = fused if problem.backward == "fused" else split
        missing(wanted, f"the backward of stage {stage}, micro-batch {microbatch}")
    else:
        for operation in (split, weight):
            if operation not in places:
                missing(operation, str(operation))
        if problem.backward == "fused":
            operation = split if split in places else weight
            message = f"{operation} is split, but only fused backwards (BW) are allowed"
            report.error("backward-not-allowed", message, device=places[operation][0], operation=operation)


def _check_local_order(problem: Problem, schedule: Schedule, places: _Places, report: Report) -> None:
    """On its own device, an operation comes after what it needs."""
    for operation, (device, index) in places.items():
        for need in inputs(operation, problem.stages):
            fused = Operation("BW", need.stage, need.microbatch)
            made = fused if need.kind == "B" and operation.kind != "W" and fused in places else need
            place = places.get(made)
            if place is not None and place[0] == device and place[1] >= index:
                message = f"{operation} comes before {made}, which it needs"
                report.error("wrong-order", message, device=device, operation=operation)


def _check_deadlock(problem: Problem, schedule: Schedule, places: _Places, report: Report) -> None:
    """The orders of all devices together have no cycle."""
    execution = execute(problem, schedule)
    if execution.complete:
        return
    waits: dict[int, tuple[Step, Operation, int]] = {}
    done = [len(starts) for starts in execution.starts]
    for device, order in enumerate(schedule.orders):
        if done[device] == len(order):
            continue
        step = order[done[device]]
        for operation in parts(step):
            for need in inputs(operation, problem.stages):
                fused = Operation("BW", need.stage, need.microbatch)
                made = fused if need.kind == "B" and fused in places else need
                maker, index = places[made]
                if index >= done[maker]:
                    waits.setdefault(device, (step, made, maker))
    cycle = _cycle({device: maker for device, (_, _, maker) in waits.items()})
    chain = "; ".join(
        f"device {device} is stuck at {step}, waiting for {made}, which comes later on device {maker}"
        for device in cycle
        for step, made, maker in [waits[device]]
    )
    others = ", ".join(f"device {d} at {waits[d][0]}" for d in sorted(waits) if d not in cycle)
    message = f"the orders deadlock: {chain}" + (f" (so also {others})" if others else "")
    report.error("deadlock", message, device=cycle[0], operation=waits[cycle[0]][0])


def _cycle(successor: dict[int, int]) -> list[int]:
    """The cycle that following `successor` ends in, from the smallest device of the shortest one."""
    cycles = []
    for start in successor:
        seen: list[int] = []
        node = start
        while node not in seen:
            seen.append(node)
            node = successor[node]
        cycles.append(seen[seen.index(node) :])
    return min(cycles, key=lambda cycle: (len(cycle), cycle))


def _check_memory(problem: Problem, schedule: Schedule, report: Report) -> None:
    """No device ever holds more than its cap."""
    unit = f" {problem.profile.memory_unit}" if problem.profile.memory_unit else ""
    for device, order in enumerate(schedule.orders):
        peak = peak_memory(problem, device, order)
        if not problem.within_cap(device, peak):
            message = f"the peak of {peak:g}{unit} is over the cap of {problem.caps[device]:g}{unit}"
            report.error("over-cap", message, device=device)
