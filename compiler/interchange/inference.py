"""Inference: the stages, micro-batches and placement of a schedule, from who executes what.

A number that a single slip of the pen can explain must not change what the rest of the file means: a stage or a
micro-batch that hardly anybody executes is a mistake to report, not a reason to miss all its other operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..diagnostic import Report
from ..operation import KINDS
from ..placement import Placement, bidirectional, explicit, is_list, named
from ..schedule import Schedule
from ..table import Rows, Table
from . import layout


def infer(schedule: Schedule, table: Table, report: Report) -> tuple[Placement | None, int]:
    """The placement and the number of micro-batches; no placement when a device executes nothing (reported)."""
    stages, microbatches = _extents(table)
    valid = table.stage < stages
    owners, strangers = _owners(table, valid, stages, schedule.devices)
    for stage in np.flatnonzero(owners < 0):
        hint = "" if stage else " (hint: stages are numbered from 0)"
        message = f"no device executes stage {stage}, though there are stages 0 to {stages - 1}{hint}"
        report.error("missing-stage", message)
        owners[stage] = owners[stage - 1]
    if strangers and stages == schedule.devices:
        both = bidirectional(stages)
        goes_up = table.microbatch >= (microbatches + 1) // 2
        expected = np.where(goes_up, stages - 1 - table.stage, table.stage)
        if int((expected != table.device)[valid].sum()) < strangers:
            return both, microbatches
    for device in sorted(set(range(schedule.devices)) - set(owners.tolist())):
        report.error("idle-device", f"device {device} owns no stage", device=device)
    return (None if report.has("idle-device") else explicit(tuple(owners.tolist()))), microbatches


def _owners(table: Table, valid: Rows, stages: int, devices: int) -> tuple[Rows, int]:
    """The device that executes most of each stage, -1 where none does, and how many operations are elsewhere."""
    pairs, times = np.unique(table.stage[valid] * devices + table.device[valid], return_counts=True)
    order = np.lexsort((-pairs, times))  # the most frequent last, of equals the smallest device
    owners = np.full(stages, -1)
    most = np.zeros(stages, np.int64)
    for pair, count in zip(pairs[order].tolist(), times[order].tolist(), strict=True):
        owners[pair // devices] = pair % devices
        most[pair // devices] = count
    return owners, int(valid.sum() - most.sum())


def _extents(table: Table) -> tuple[int, int]:
    """The number of stages and of micro-batches: each is executed at least half as much as any other."""
    width = np.max(table.microbatch, initial=0) + 1
    done = np.unique((table.stage * width + table.microbatch) * len(KINDS) + table.kind) // len(KINDS)
    stages, times = np.unique(done // width, return_counts=True)
    count = _extent(stages, 2 * times >= np.max(times, initial=0))
    microbatches, times = np.unique(done[done < count * width] % width, return_counts=True)
    return count, _extent(microbatches, 2 * times >= np.max(times, initial=0))


def _extent(numbers: Rows, supported: Rows) -> int:
    """1 + the largest number that is supported and leaves no more gaps below it than there are numbers."""
    plausible = supported & (numbers < 2 * np.arange(1, len(numbers) + 1))
    return int(numbers[plausible].max(initial=0)) + 1


def placed(placement: str | Sequence[int] | Placement, devices: int, stages: int) -> Placement:
    """The placement that a caller or a comment states. Raises InputError when it cannot be understood or built."""
    if isinstance(placement, Placement):
        return placement
    if isinstance(placement, str) and layout.is_layout(placement):
        return layout.placed(placement, devices)
    if isinstance(placement, str) and not is_list(placement):
        chunks = max(1, stages // devices) if placement in ("loop", "v") else None
        return named(placement, devices=devices, chunks=chunks)
    return explicit(placement)
