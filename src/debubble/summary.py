"""Summaries: what a report says of a timeline beyond its makespan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .compiler.errors import InputError
from .compiler.named import named_schedule
from .compiler.operation import parts
from .compiler.problem import Problem
from .compiler.simulation import Timeline, simulate

REFERENCES = ("1f1b", "interleaved")
"""The schedules that others are measured against: the first that exists on the placement."""


def in_flight(timeline: Timeline) -> list[int]:
    """By device, the most (stage, micro-batch) pairs that are under way at once: from the F until the BW or W ends."""
    most = []
    for order in timeline.schedule.orders:
        kinds = [operation.kind for step in order for operation in parts(step)]
        held = top = 0
        for kind in kinds:
            held += kind == "F"
            top = max(top, held)
            held -= kind in ("BW", "W")
        most.append(top)
    return most


def reference(problem: Problem) -> Timeline | None:
    """The classic schedule of the same placement, whether it fits the caps or not; None where there is none."""
    for name in REFERENCES:
        try:
            return simulate(problem, named_schedule(name, problem))
        except InputError:
            continue
    return None


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80) -> str:
    """Aligned columns, the first to the left, the others to the right; closer together where that `width` is short."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    between = "  " if sum(widths) + 2 * (len(widths) - 1) <= width else " "
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True))]
        lines.append(between.join(cells).rstrip())
    return "\n".join(lines)


def amount(value: float | None, unit: str = "") -> str:
    """A number as people read it, with its unit."""
    return "-" if value is None else f"{value:g}" + (f" {unit}" if unit else "")


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def units(problem: Problem) -> str:
    """The units of a problem's numbers, in brackets; nothing where the profile names none."""
    profile = problem.profile
    named = {"time": profile.time_unit, "memory": profile.memory_unit}
    text = ", ".join(f"{what} in {unit}" for what, unit in named.items() if unit)
    return f" ({text})" if text else ""


def per_device(timeline: Timeline) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table: for each device its stages, peak memory next to the cap, micro-batches in flight,
    and how its time is spent."""
    problem = timeline.problem
    rows = []
    flights = in_flight(timeline)
    for device, (peak, cap, busy) in enumerate(zip(timeline.peak_memory, problem.caps, timeline.busy, strict=True)):
        stages = ",".join(map(str, problem.placement.copies[device]))
        idle = timeline.makespan - busy
        row = [str(device), stages, f"{peak:g}", "-" if math.isinf(cap) else f"{cap:g}", str(flights[device])]
        rows.append([*row, f"{busy:g}", f"{idle:g}", percent(idle / timeline.makespan if timeline.makespan else None)])
    return ["device", "stages", "peak memory", "cap", "in flight", "busy", "idle", "idle share"], rows


def against(timeline: Timeline, other: Timeline) -> str:
    """One line on how a schedule does against another of the same problem."""
    time, memory = timeline.problem.profile.time_unit, timeline.problem.profile.memory_unit
    saved = 1 - timeline.value / other.value if other.value else 0.0
    theirs, ours = (amount(max(each.peak_memory), memory) for each in (other, timeline))
    change = f"{percent(abs(saved))} {'less' if saved >= 0 else 'more'} time"
    name = other.schedule.method
    problem = other.problem
    over = not all(problem.within_cap(device, peak) for device, peak in enumerate(other.peak_memory))
    theirs += ", which does not fit" if over else ""
    return f"{name} takes {amount(other.value, time)} and holds {theirs}; this takes {change} and holds {ours}"
