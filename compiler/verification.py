"""Verification of orders: is a schedule a complete, executable and affordable solution of a problem?

`verify` finds every violation in one run. It knows nothing of how the schedule was made. All checks but the search for
a deadlock work on arrays with one row per operation, so that a million operations take about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from .diagnostic import MAX_OF_A_KIND, Report
from .errors import InvalidScheduleError
from .operation import KINDS, Operation, Pair, Step, parts
from .problem import Problem
from .schedule import Schedule
from .simulation import Execution, execute, inputs
from .table import NUMBER, Rows, Table, needs

_MOST_NAMES = 12
_MOST_VISITS = 1_000_000
_NOTHING = 1e-9


def verify(problem: Problem, schedule: Schedule, *, forward_only: bool = False) -> Report:
    """Check completeness, duplicates, ranges, placement, dependencies, deadlock and the memory caps."""
    return examine(problem, schedule, forward_only=forward_only)[0]


def examine(
    problem: Problem, schedule: Schedule, *, forward_only: bool = False, table: Table | None = None
) -> tuple[Report, Execution | None]:
    """What `verify` finds, and the execution of a schedule that can be executed, whatever else is wrong with it.

    `table` is the schedule's, where it has been made before.
    """
    report = Report()
    if schedule.devices != problem.devices:
        report.error(
            "device-count", f"the schedule has {schedule.devices} devices, but the problem has {problem.devices}"
        )
        return report, None
    table = table or Table.of(schedule)
    _check_pairs(schedule, report)
    in_range = _check_ranges(problem, table, report)
    places = _Places.of(problem, table, in_range)
    _check_duplicates(table, places, report)
    _check_devices(problem, table, in_range, report)
    missing = _check_complete(problem, table, places, report, forward_only)
    late = _check_local_order(problem, table, places, in_range, report)
    if not in_range.all() or report.has("backward-in-forward-only"):
        return report, None
    given = missing + late
    execution = execute(problem, schedule, given=given)
    if not execution.complete:
        _check_deadlock(problem, schedule, table, places, execution, report)
    _check_memory(problem, table, report)
    return report, execution if execution.complete and not given else None


def require_valid(problem: Problem, schedule: Schedule) -> None:
    """Raise InvalidScheduleError unless `verify` finds nothing."""
    report = verify(problem, schedule)
    if not report.valid:
        raise InvalidScheduleError(report.shortened())


@dataclass(frozen=True)
class _Places:
    """By kind, the first row that executes stage s and micro-batch j, at [s, j]; -1 where none does."""

    rows: dict[str, Rows]
    repeated: Rows
    """The rows that execute what an earlier row has executed."""

    @classmethod
    def of(cls, problem: Problem, table: Table, in_range: Rows) -> _Places:
        shape = (len(KINDS), problem.stages, problem.microbatches)
        present = np.flatnonzero(in_range)
        cells = np.ravel_multi_index((table.kind[present], table.stage[present], table.microbatch[present]), shape)
        executed, first = np.unique(cells, return_index=True)
        rows = np.full(shape, -1, np.int64)
        rows.ravel()[executed] = present[first]
        repeated = np.delete(present, first)
        return cls({kind: rows[number] for number, kind in enumerate(KINDS)}, repeated)

    @cached_property
    def gradients(self) -> Rows:
        """The row that makes the gradient which a stage sends back: its BW, or else its B."""
        return np.where(self.rows["BW"] >= 0, self.rows["BW"], self.rows["B"])

    def consumer(self, operation: Operation) -> int:
        """A row that needs the result of an operation, or -1."""
        kind, stage, microbatch = operation
        found = []
        if kind == "F":
            found.append(self.gradients[stage, microbatch])
            if stage + 1 < len(self.rows["F"]):
                found.append(self.rows["F"][stage + 1, microbatch])
        elif kind != "W":
            found.append(self.rows["W"][stage, microbatch])
            if stage > 0:
                found.append(self.gradients[stage - 1, microbatch])
        return max(map(int, found), default=-1)


def _check_pairs(schedule: Schedule, report: Report) -> None:
    """The two halves of an overlapped pair belong to different micro-batches."""
    for device, order in enumerate(schedule.orders):
        for index, step in enumerate(order):
            if type(step) is Pair and step.forward.microbatch == step.backward.microbatch:
                message = f"{step}: a pair overlaps different micro-batches, not twice {step.forward.microbatch}"
                report.error("bad-pair", message, device=device, operation=step, index=index)


def _check_ranges(problem: Problem, table: Table, report: Report) -> Rows:
    """Stages and micro-batches exist. Returns which rows are in range."""
    stages, m = problem.stages, problem.microbatches
    good_stage = (table.stage >= 0) & (table.stage < stages)
    good_microbatch = (table.microbatch >= 0) & (table.microbatch < m)
    table.report(
        report,
        "stage-out-of-range",
        np.flatnonzero(~good_stage),
        lambda operation, _: f"{operation}: there is no stage {operation.stage}, only 0 to {stages - 1}",
    )
    table.report(
        report,
        "microbatch-out-of-range",
        np.flatnonzero(good_stage & ~good_microbatch),
        lambda operation, _: f"{operation}: micro-batch {operation.microbatch} is out of range, there are 0 to {m - 1}",
    )
    return good_stage & good_microbatch


def _check_duplicates(table: Table, places: _Places, report: Report) -> None:
    """Nothing is executed twice."""

    def message(operation: Operation, row: int) -> str:
        first = places.rows[operation.kind][operation.stage, operation.microbatch]
        return f"{operation} is executed twice, first on device {table.device[first]} at position {table.index[first]}"

    table.report(report, "duplicate-operation", places.repeated, message)


def _check_devices(problem: Problem, table: Table, in_range: Rows, report: Report) -> None:
    """Every operation is on the device that owns its stage."""
    placement, m = problem.placement, problem.microbatches
    owners = np.array([placement.down, placement.up or placement.down])
    goes_up = placement.bidirectional & (table.microbatch >= (m + 1) // 2)
    owner = owners[goes_up.astype(np.int8), np.where(in_range, table.stage, 0)]
    table.report(
        report,
        "wrong-device",
        np.flatnonzero(in_range & (owner != table.device)),
        lambda operation, row: (
            f"{operation}: stage {operation.stage} belongs to device {owner[row]}, not {table.device[row]}"
        ),
    )


def _check_complete(
    problem: Problem, table: Table, places: _Places, report: Report, forward_only: bool
) -> list[Operation]:
    """Every stage and micro-batch has F once, and either BW or B and W, as the problem allows.

    Returns what is missing: the values that nothing makes.
    """
    forward, split, weight, fused = (places.rows[kind] >= 0 for kind in KINDS)
    absent: list[Operation] = []
    from_one = not any(places.rows[kind][:, 0].max() >= 0 for kind in KINDS)

    def missing(kind: str, cells: Rows, what: str = "") -> None:
        found = [Operation(kind, int(stage), int(microbatch)) for stage, microbatch in np.argwhere(cells)]
        for operation in found[:MAX_OF_A_KIND]:
            message = f"{what.format(*operation[1:]) if what else operation} is never executed"
            device, index = problem.device(operation), None
            if (row := places.consumer(operation)) >= 0:
                message += f", though {table.operation(row)} needs it"
                device, index = int(table.device[row]), int(table.index[row])
            if from_one and operation.microbatch == 0:
                message += " (hint: micro-batches are numbered from 0)"
            report.error("missing-operation", message, operation=operation, device=device, index=index)
        report.count("missing-operation", len(found[MAX_OF_A_KIND:]))
        absent.extend(Operation("B" if kind == "BW" else kind, *operation[1:]) for operation in found)

    missing("F", ~forward)
    if forward_only:
        table.report(
            report,
            "backward-in-forward-only",
            np.flatnonzero(table.kind != NUMBER["F"]),
            lambda operation, _: f"{operation}: a forward-only schedule has no backwards",
        )
        return absent
    whole = "BW" if problem.backward == "fused" else "B"
    missing(whole, ~(split | weight | fused), "the backward of stage {}, micro-batch {}")
    missing("B", weight & ~split & ~fused)
    missing("W", split & ~weight & ~fused)
    repeats = np.concatenate([places.rows[kind][fused & cells] for kind, cells in (("B", split), ("W", weight))])
    table.report(
        report,
        "mixed-backward",
        np.sort(repeats),
        lambda operation, _: (
            f"{operation} repeats what the fused backward {operation._replace(kind='BW')} already does"
        ),
    )
    if problem.backward == "split":
        table.report(
            report,
            "backward-not-allowed",
            np.sort(places.rows["BW"][fused]),
            lambda operation, _: f"{operation} is fused, but only split backwards (B and W) are allowed",
        )
    if problem.backward == "fused":
        used = [rows[rows >= 0] for rows in (places.rows["B"], places.rows["W"])]
        table.report(
            report,
            "backward-not-allowed",
            np.sort(np.concatenate(used)),
            lambda operation, _: f"{operation} is split, but only fused backwards (BW) are allowed",
        )
    return absent


def _dependencies(problem: Problem, table: Table, places: _Places, in_range: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Rows and the rows they need, -1 where nothing makes it, rule by rule."""
    for rows, gradient, offset in needs(table.kind, table.stage, problem.stages):
        rows = rows[in_range[rows]]
        made = places.gradients if gradient else places.rows["F"]
        yield rows, made[table.stage[rows] + offset, table.microbatch[rows]]


def _check_local_order(
    problem: Problem, table: Table, places: _Places, in_range: Rows, report: Report
) -> list[Operation]:
    """On its own device, an operation comes after what it needs. Returns the values that come too late."""
    early: list[Rows] = []
    late: list[Rows] = []
    for rows, made in _dependencies(problem, table, places, in_range):
        row, need = rows[made >= 0], made[made >= 0]
        bad = (table.device[row] == table.device[need]) & (table.index[need] >= table.index[row])
        early.append(row[bad])
        late.append(need[bad])
    row, need = np.concatenate(early), np.concatenate(late)
    order = np.argsort(row, kind="stable")
    row, need = row[order], need[order]
    needed = iter(need)
    table.report(
        report,
        "wrong-order",
        row,
        lambda operation, _: f"{operation} comes before {table.operation(next(needed))}, which it needs",
    )
    values = (table.operation(made) for made in need)
    return [value._replace(kind="B") if value.kind == "BW" else value for value in values]


def _check_deadlock(
    problem: Problem, schedule: Schedule, table: Table, places: _Places, execution: Execution, report: Report
) -> None:
    """Report the cycle in which the orders of the devices wait for each other."""
    waits = _waits(problem, schedule, table, places, execution)
    cycle = _shortest_cycle({device: [maker for _, _, maker in found] for device, found in waits.items()})
    links = []
    for device, following in zip(cycle[:_MOST_NAMES], [*cycle[1:], cycle[0]], strict=False):
        step, made = next((step, made) for step, made, maker in waits[device] if maker == following)
        links.append(f"device {device} is stuck at {step}, waiting for {made}, which comes later on device {following}")
    if len(cycle) > len(links):
        links.append(f"and so on over {len(cycle)} devices, back to device {cycle[0]}")
    around = sorted(waits.keys() - set(cycle))
    others = [f"device {device} at {waits[device][0][0]}" for device in around[:_MOST_NAMES]]
    others += [f"{len(around) - len(others)} more"] if len(around) > len(others) else []
    message = f"the orders deadlock: {'; '.join(links)}" + (f" (so also {', '.join(others)})" if others else "")
    first = cycle[0]
    report.error("deadlock", message, device=first, operation=waits[first][0][0], index=len(execution.starts[first]))


def _waits(
    problem: Problem, schedule: Schedule, table: Table, places: _Places, execution: Execution
) -> dict[int, list[tuple[Step, Operation, int]]]:
    """For each stuck device, what it is stuck at: (step, the operation it waits for, the device that has it)."""
    gradients = places.gradients
    done = [len(starts) for starts in execution.starts]
    waits: dict[int, list[tuple[Step, Operation, int]]] = {}
    for device, order in enumerate(schedule.orders):
        for step in order[done[device] : done[device] + 1]:
            for operation in parts(step):
                for need in inputs(operation, problem.stages):
                    rows = places.rows["F"] if need.kind == "F" else gradients
                    row = rows[need.stage, need.microbatch]
                    if row >= 0 and table.device[row] != device and table.index[row] >= done[table.device[row]]:
                        maker = int(table.device[row])
                        waits.setdefault(device, []).append((step, table.operation(row), maker))
    return waits


def _shortest_cycle(successors: dict[int, list[int]]) -> list[int]:
    """A shortest cycle of a graph where every node has a successor: breadth first from every node, smallest first.

    In graphs so large that this takes too long, the shortest of those found by then.
    """
    best: list[int] = []
    visits = 0
    for start in sorted(successors):
        before = {start: start}
        depth = {start: 1}
        for node in (frontier := [start]):
            if best and (depth[node] >= len(best) or visits > _MOST_VISITS):
                break
            visits += 1
            if start in successors[node]:
                best = _path(before, node)
                break
            for after in successors[node]:
                if after not in before:
                    before[after], depth[after] = node, depth[node] + 1
                    frontier.append(after)
    return best


def _path(before: dict[int, int], node: int) -> list[int]:
    path = [node]
    while before[node] != node:
        node = before[node]
        path.append(node)
    return path[::-1]


def _check_memory(problem: Problem, table: Table, report: Report) -> None:
    """No device ever holds more than its cap."""
    unit = f" {problem.profile.memory_unit}" if problem.profile.memory_unit else ""
    factors = np.array(problem.profile.microbatches or (1.0,))
    by_stage = np.array([[costs[kind] for kind in KINDS] for costs in problem.costs])
    chosen = np.array([np.frombuffer(line, np.uint8) for line in problem.chosen])
    costs = by_stage[chosen[table.stage, table.microbatch], table.kind, table.stage]
    costs *= factors[table.microbatch if len(factors) > 1 else 0, None]
    rises, changes = costs[:, 1], costs[:, 2]
    bounds = np.searchsorted(table.device, np.arange(problem.devices + 1))
    for device, (begin, end) in enumerate(pairwise(bounds)):
        # within a step, what is taken comes first: the stable sort leaves everything else in place
        rows = np.tile(np.arange(begin, end), 2)
        moments = np.concatenate((2 * table.index[begin:end], 2 * table.index[begin:end] + 1))
        moves = np.concatenate((rises[begin:end], changes[begin:end] - rises[begin:end]))
        order = np.argsort(moments, kind="stable")
        rows, moves = rows[order], moves[order]
        held = problem.static_memory[device] + np.cumsum(moves)
        if not len(held) or problem.within_cap(device, float(held.max())):
            continue
        at = int(held.argmax())
        report.error(
            "over-cap",
            f"the peak of {held[at]:g}{unit}, at {table.operation(rows[at])}, is over the cap of "
            f"{problem.caps[device]:g}{unit}; held then: {_holders(table, rows[: at + 1], moves)}",
            device=device,
            operation=table.operation(rows[at]),
            index=int(table.index[rows[at]]),
        )


def _holders(table: Table, rows: Rows, moves: Rows) -> str:
    """The micro-batches, by stage, that hold memory after the moves of these rows."""
    held: dict[int, dict[int, float]] = {}
    for row, move in zip(rows, moves, strict=False):
        by_microbatch = held.setdefault(int(table.stage[row]), {})
        microbatch = int(table.microbatch[row])
        by_microbatch[microbatch] = by_microbatch.get(microbatch, 0.0) + float(move)
    texts = []
    for stage, amounts in sorted(held.items()):
        names = [str(microbatch) for microbatch, amount in sorted(amounts.items()) if amount > _NOTHING]
        if names:
            shown = (
                names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], f"and {len(names) - _MOST_NAMES} more"]
            )
            texts.append(f"stage {stage}: micro-batches {', '.join(shown)}")
    return "; ".join(texts) or "static memory"
