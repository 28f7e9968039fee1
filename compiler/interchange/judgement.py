"""Judgements: everything that `verify` says of a file."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import advice, files
from .. import plan as plans
from ..diagnostic import Diagnostic, Report
from ..errors import InputError
from ..placement import Placement
from ..profile import Profile
from ..recomputation import Recompute
from ..simulation import Timeline
from ..streams import TRANSFERS, verify_streams
from ..verification import examine
from ..wording import counted
from .communication import spell
from .drawing import lines
from .inference import placed
from .reader import ReadSchedule, read_schedule

_WIDTH = 100
_MOST_SHOWN = 16
_TRANSFERS = {
    "rendezvous": "a send blocks until its receive is posted",
    "buffered": "assumed that a send never blocks (--transfers rendezvous is safe without that)",
}


@dataclass(frozen=True)
class Judgement:
    """What was found in a file; the schedule is valid when the report has no errors.

    `understood` is False when the request or the file could not be read, rather than the schedule being wrong.
    `timeline` is there when the schedule can be executed at all. `excerpts` holds the lines of the file that
    diagnostics point into. `transfers` is the assumption its sends and receives were judged under, if it has any.
    """

    source: str
    report: Report
    understood: bool
    dialect: str | None = None
    devices: int | None = None
    stages: int | None = None
    microbatches: int | None = None
    timeline: Timeline | None = None
    drawn_makespan: float | None = None
    transfers: str | None = None
    excerpts: dict[int, str] | None = None

    @property
    def valid(self) -> bool:
        return self.report.valid

    @property
    def exit_status(self) -> int:
        """0 valid, 1 invalid, 2 not understood."""
        return 2 if not self.understood else 0 if self.valid else 1

    def as_json(self) -> dict[str, Any]:
        """The keys that `debubble verify --json` prints."""
        timeline = self.timeline
        result: dict[str, Any] = {
            "valid": self.valid,
            "errors": [diagnostic.as_json() for diagnostic in self.report.errors],
            "warnings": [diagnostic.as_json() for diagnostic in self.report.warnings],
            "dialect": self.dialect,
            "devices": self.devices,
            "stages": self.stages,
            "microbatches": self.microbatches,
            "makespan": timeline and timeline.makespan,
            "span": timeline and timeline.span,
            "peak_memory": timeline and timeline.peak_memory,
            "bubble_ratio": timeline and timeline.bubble_ratio(timeline.makespan),
            "idle_fraction": timeline and timeline.idle_fraction,
        }
        if self.drawn_makespan is not None:
            result["drawn_makespan"] = self.drawn_makespan
        return result

    def diagnostics(self) -> str:
        """Every error and warning with its place, and a caret under the token it is about."""
        texts = [self._explain("error", diagnostic) for diagnostic in self.report.errors]
        return "\n".join(texts + [self._explain("warning", diagnostic) for diagnostic in self.report.warnings])

    def summary(self) -> str:
        """What the schedule is and what it costs, in a few lines."""
        if not self.understood:
            return f"{self.source}: not understood"
        verdict = "valid" if self.valid else "invalid"
        lines = [
            f"{self.source}: {verdict} ({self.dialect}; {counted(self.devices or 0, 'device')}, "
            f"{counted(self.stages or 0, 'stage')}, {counted(self.microbatches or 0, 'micro-batch')})"
        ]
        if self.transfers is not None:
            lines.append(f"  transfers    {self.transfers}: {_TRANSFERS[self.transfers]}")
        if self.timeline is not None:
            ratio = self.timeline.bubble_ratio(self.timeline.makespan)
            drawn = "" if self.drawn_makespan is None else f", drawn as {self.drawn_makespan:g}"
            profile = self.timeline.problem.profile
            time = f" {profile.time_unit}" if profile.time_unit else ""
            memory = f" {profile.memory_unit}" if profile.memory_unit else ""
            lines += [
                f"  makespan     {self.timeline.makespan:g}{time}{drawn}; span {self.timeline.span:g}{time}",
                f"  bubble ratio {'-' if ratio is None else f'{ratio:.2%}'} (idle time over ideal time); "
                f"idle fraction {self.timeline.idle_fraction:.2%} (of all device time)",
                f"  peak memory  {' '.join(_shortened([f'{peak:g}' for peak in self.timeline.peak_memory]))}{memory}",
            ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.diagnostics(), self.summary())))

    def _explain(self, kind: str, diagnostic: Diagnostic) -> str:
        device = "" if diagnostic.device is None else f" device {diagnostic.device}:"
        head = f"{kind}[{diagnostic.code}]{device} {diagnostic.message}"
        if diagnostic.line is None:
            return head
        place = ":".join(str(part) for part in (self.source, diagnostic.line, diagnostic.column) if part is not None)
        line = (self.excerpts or {}).get(diagnostic.line)
        if line is None or diagnostic.column is None:
            return f"{head}\n  --> {place}"
        start = max(0, diagnostic.column - 1 - _WIDTH // 2)
        window = "".join(letter if letter.isprintable() else " " for letter in line[start : start + _WIDTH])
        before = diagnostic.column - 1 - start
        token = window[before:].split(",")[0].split(" ")[0]
        number = str(diagnostic.line)
        caret = " " * before + "^" * max(1, len(token))
        return f"{head}\n  --> {place}\n {number} | {window}\n {' ' * len(number)} | {caret}"


def _shortened(texts: list[str]) -> list[str]:
    return texts if len(texts) <= _MOST_SHOWN else [*texts[: _MOST_SHOWN - 4], "...", *texts[-3:]]


def verify_file(
    path: str | os.PathLike[str],
    *,
    dialect: str = "auto",
    profile: Profile | None = None,
    microbatches: int | None = None,
    placement: str | Sequence[int] | Placement | None = None,
    memory_cap: float | Sequence[float] | None = None,
    recompute: Recompute | None = None,
    transfers: str = "rendezvous",
    forward_only: bool = False,
) -> Judgement:
    """Judge a schedule file of any dialect, or a plan, and report everything that is wrong with it.

    A plan is judged with what it holds, unless the caller says otherwise. Without a profile every F, B and W takes 1,
    BW 2, and memory is 1, 0, -1. Never raises for what a file contains: the judgement then has `understood` False.
    """
    source = os.fspath(path)
    collecting = gc.isenabled()
    gc.disable()  # everything is kept until the end: looking for garbage meanwhile takes as long as the work itself
    try:
        if transfers not in TRANSFERS:
            raise InputError(f"unknown transfers {transfers!r}", hint=f"one of {', '.join(TRANSFERS)}")
        if files.read_bytes(path).lstrip()[:1] == b"{":
            return _judge_plan(source, profile, microbatches, placement, memory_cap, recompute)
        read = read_schedule(path, dialect=dialect, microbatches=microbatches, placement=placement)
        return _judge(read, profile, memory_cap, recompute, transfers, forward_only)
    except InputError as error:
        report = Report()
        hint = f" (hint: {error.hint})" if error.hint else ""
        report.error(error.code, error.message + hint, line=error.line, column=error.column)
        return Judgement(source, report, understood=False)
    finally:
        if collecting:
            gc.enable()


def _judge(
    read: ReadSchedule,
    profile: Profile | None,
    memory_cap: float | Sequence[float] | None,
    recompute: Recompute | None,
    transfers: str,
    forward_only: bool,
) -> Judgement:
    schedule = read.schedule
    located, timeline = Report(), None

    def take(report: Report, in_streams: bool = False) -> None:
        """Add what is new, with its place in the file."""
        errors = [read.locate(diagnostic, in_streams=in_streams) for diagnostic in report.errors]
        known = {(error.code, error.line, error.column) for error in located.errors}
        fresh = [error for error in errors if (error.code, error.line, error.column) not in known or not in_streams]
        warnings = [read.locate(diagnostic, in_streams=in_streams) for diagnostic in report.warnings]
        located.merge(Report(fresh, warnings, report.counts if fresh or warnings else Counter()))

    located.merge(read.report)
    if read.understood:
        located.merge(read.findings)
    if read.understood and read.placement is not None:
        problem = read.problem(profile, memory_cap=memory_cap, recompute=recompute)
        no_backward = not forward_only and all(operation.kind == "F" for _, operation in schedule.operations())
        report, execution = examine(problem, schedule, forward_only=forward_only or no_backward, table=read.table)
        if no_backward:
            report.error(
                "no-backward", "the file has forwards only (hint: debubble verify --forward-only judges it so)"
            )
        take(report)
        if read.streams is not None:
            take(verify_streams(problem, read.streams, transfers=transfers, spell=spell), in_streams=True)
        timeline = None if execution is None else Timeline(problem, schedule, execution)
        if located.valid and timeline is not None:
            take(_advice(timeline, profile))
            if read.streams is not None:
                late_or_early = Report()
                advice.receives(problem, timeline.execution, read.streams, late_or_early, spell)
                take(late_or_early, in_streams=True)
    return Judgement(
        read.source,
        located.shortened(),
        understood=read.understood,
        dialect=read.dialect,
        devices=schedule.devices,
        stages=read.stages,
        microbatches=read.microbatches or None,
        timeline=timeline,
        drawn_makespan=read.drawn_makespan,
        transfers=None if read.streams is None else transfers,
        excerpts=_excerpts(read.content, located),
    )


def _excerpts(content: str, report: Report) -> dict[int, str]:
    """The lines of a file that diagnostics point into."""
    numbers = {diagnostic.line for diagnostic in report.errors + report.warnings}
    return {number: line for number, line in lines(content) if number in numbers}


def _advice(timeline: Timeline, profile: Profile | None) -> Report:
    report = Report()
    if profile is not None:
        advice.doubt(profile, report)
    advice.idle(timeline, report)
    return report


def _judge_plan(
    source: str,
    profile: Profile | None,
    microbatches: int | None,
    placement: str | Sequence[int] | Placement | None,
    memory_cap: float | Sequence[float] | None,
    recompute: Recompute | None,
) -> Judgement:
    plan, report, timeline = plans.read(source)
    own = plan.problem
    cap = own.memory_cap if memory_cap is None else memory_cap
    if isinstance(cap, Sequence):
        cap = tuple(cap)
    stated = replace(
        own,
        profile=profile or own.profile,
        placement=own.placement if placement is None else placed(placement, own.devices, own.stages),
        microbatches=own.microbatches if microbatches is None else microbatches,
        memory_cap=cap,
        recompute=own.recompute if recompute is None else recompute,
    )
    if stated != own:
        found, execution = examine(stated, plan.schedule)
        report.merge(found)
        timeline = None if execution is None else Timeline(stated, plan.schedule, execution)
    return Judgement(
        source,
        report.shortened(),
        understood=True,
        dialect="plan",
        devices=own.devices,
        stages=own.stages,
        microbatches=own.microbatches,
        timeline=timeline,
        excerpts=None if report.valid else _excerpts(files.read_text(source), report),
    )
