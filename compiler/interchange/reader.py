"""Reading: from a file of any dialect to a schedule with a placement, and the place of every entry in the file."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from .. import files
from ..diagnostic import MAX_OF_A_KIND, Diagnostic, Report
from ..errors import InputError
from ..instruction import Stream
from ..placement import Placement
from ..problem import Problem
from ..profile import Profile
from ..recomputation import Recompute
from ..schedule import Schedule
from ..table import Table
from ..wording import counted
from . import megatron, printed, text, torch_csv
from .communication import check_loss_order, check_whole_stages, streams_of
from .drawing import MAX_BYTES, Communication, Drawing
from .inference import infer, placed

DIALECTS: dict[str, Callable[[str], Drawing]] = {
    "torch": lambda content: torch_csv.read(content, "torch"),
    "torch-legacy": lambda content: torch_csv.read(content, "torch-legacy"),
    "text": text.read,
    "printed": printed.read,
    "megatron": megatron.read,
}
_SAMPLE = 2**16
_NAME = re.compile(r"[FIBW]\d")
_NAMES_OF_A_SCHEDULE = 0.1
"""A file with fewer operations, or what looks like one, for each entry that is none is no schedule with mistakes."""


@dataclass(frozen=True)
class ReadSchedule:
    """A schedule as a file has it.

    `report` holds what could not be understood and the choices that reading made; `findings` what is wrong with the
    schedule beyond its order. `placement` is None when no placement gives what the devices execute. `streams` are
    there when the file says when to send and to receive, and `drawn_makespan` (one unit a cell) when it draws idle
    cells.
    """

    source: str
    dialect: str
    schedule: Schedule
    placement: Placement | None
    microbatches: int
    report: Report
    findings: Report
    drawing: Drawing
    content: str
    table: Table | None = None
    streams: tuple[Stream, ...] | None = None
    origins: list[array[int]] | None = None

    @property
    def understood(self) -> bool:
        return self.report.valid

    @property
    def drawn_makespan(self) -> float | None:
        return self.drawing.drawn_makespan

    @property
    def stages(self) -> int | None:
        return None if self.placement is None else self.placement.stages

    def problem(
        self,
        profile: Profile | None = None,
        *,
        memory_cap: float | Sequence[float] | None = None,
        recompute: Recompute | None = None,
    ) -> Problem:
        """The problem that the schedule solves; without a profile every F, B and W takes 1, and memory is 1, 0, -1.

        Which micro-batches are recomputed the file may state, unless the caller does.

        Raises InputError with the first thing that was not understood, or when the profile does not fit.
        """
        if self.placement is None or not self.understood:
            first = (self.report.errors or self.findings.errors)[0]
            raise InputError(first.message, code=first.code, source=self.source, line=first.line, column=first.column)
        if profile is None:
            profile = Profile.uniform(stages=self.placement.stages, forward=1, backward_input=1, backward_weight=1)
        cap = tuple(memory_cap) if isinstance(memory_cap, Sequence) else memory_cap
        again = self.drawing.recompute if recompute is None else recompute
        return Problem(profile, self.placement, self.microbatches, cap, recompute=again)

    def locate(self, diagnostic: Diagnostic, *, in_streams: bool = False) -> Diagnostic:
        """The same diagnostic in the letters of the file, with the line and column of its operation.

        Its index counts steps of the order, or instructions of the stream. Without one it gets its device's line.
        """
        device, index = diagnostic.device, diagnostic.index
        operation = diagnostic.operation and self.drawing.spell(diagnostic.operation)
        spelled = replace(diagnostic, message=self.drawing.spell(diagnostic.message), operation=operation)
        if diagnostic.line is not None or device is None or device >= len(self.drawing.rows):
            return spelled
        row = self.drawing.rows[device]
        if index is None:
            return replace(spelled, line=row.line)
        if in_streams and self.origins is not None:
            place = self.origins[device][index]
        else:
            steps = (place for place, item in enumerate(row.items) if type(item) is not Communication)
            place = next(islice(steps, index, None))
        found = row.at(device, place)
        return replace(spelled, line=found["line"], column=found["column"])


def read_schedule(
    path: str | os.PathLike[str],
    *,
    dialect: str = "auto",
    microbatches: int | None = None,
    placement: str | Sequence[int] | Placement | None = None,
) -> ReadSchedule:
    """Read a schedule file of any dialect.

    The placement and the micro-batches follow from who executes what, unless the caller or the file states them.
    Raises InputError when there is no such file or dialect; what is wrong inside the file is in the report.
    """
    source = os.fspath(path)
    content = files.read_text(path)
    if len(content) > MAX_BYTES:
        raise InputError(f"the file is larger than {MAX_BYTES // 2**20} MiB", code="too-large", source=source)
    if content.lstrip()[:1] == "{":
        hint = "debubble lower is for schedules that are none yet"
        raise InputError("this is a plan already, or other JSON", code="wrong-format", source=source, hint=hint)
    try:
        drawing, report = _draw(content, dialect)
        if drawing.report.has("bad-token") and not _draw(content.upper(), dialect)[0].report.has("bad-token"):
            first = drawing.report.errors[0]
            message = "letters are capitals (hint: write the whole file in capitals)"
            raise InputError(message, code="bad-token", line=first.line, column=first.column)
        if dialect == "auto" and _is_none(drawing, content):
            first = drawing.report.errors[0]
            message = "this is no schedule: it names hardly any operation, in any dialect"
            hint = f"--dialect {'|'.join(DIALECTS)} says what is wrong with each entry"
            raise InputError(message, code="bad-token", line=first.line, column=first.column, hint=hint)
    except InputError as error:
        error.source = source
        raise
    dialect = drawing.dialect
    report.merge(drawing.report)
    schedule = Schedule.of(
        ([item for item in row.items if not isinstance(item, Communication)] for row in drawing.rows),
    )
    findings = Report()
    if not any(schedule.orders):
        if report.valid:
            report.error("empty", "the file has no operation")
        return ReadSchedule(source, dialect, schedule, None, 0, report, findings, drawing, content)
    table = Table.of(schedule)
    found, seen = infer(schedule, table, findings)
    where, m = _stated(schedule, drawing, found, seen, placement, microbatches, report, findings)
    streams, origins = None, None
    if where is not None:
        if drawing.communicates:
            streams, origins = streams_of(drawing, where, m, findings)
        check_whole_stages(drawing, where, findings)
        if dialect in torch_csv.DIALECTS:
            check_loss_order(drawing, where, findings)
    return ReadSchedule(
        source, dialect, schedule, where, m, report, findings, drawing, content, table, streams, origins
    )


def _is_none(drawing: Drawing, content: str) -> bool:
    """True for a text that is about something else, or markup, which may have operations in its data."""
    bad = drawing.report.counts["bad-token"]
    few = len(_NAME.findall(content)) < _NAMES_OF_A_SCHEDULE * bad
    return bad > MAX_OF_A_KIND and (few or content.lstrip().startswith("<"))


def _draw(content: str, dialect: str) -> tuple[Drawing, Report]:
    """Read a text in a dialect, or in the one it seems to be in; the report holds the choices that were made."""
    report = Report()
    if dialect == "auto":
        dialect, report = detect(content)
    elif dialect not in DIALECTS:
        raise InputError(f"unknown dialect {dialect!r}", hint=f"one of auto, {', '.join(DIALECTS)}")
    return DIALECTS[dialect](content), report


def _stated(
    schedule: Schedule,
    drawing: Drawing,
    found: Placement | None,
    seen: int,
    placement: str | Sequence[int] | Placement | None,
    microbatches: int | None,
    report: Report,
    findings: Report,
) -> tuple[Placement | None, int]:
    """The placement and micro-batches to judge with: those stated by the caller, else by the file, else as found."""
    stated = microbatches if microbatches is not None else drawing.microbatches
    if (
        stated is not None
        and stated > seen
        and any(operation.microbatch == stated - 1 for _, operation in schedule.operations())
    ):
        seen = stated  # what the file lacks of it is missing, whatever the file alone would suggest
    if stated is not None and stated != seen:
        findings.error(
            "microbatch-count",
            f"the file has {counted(seen, 'micro-batch')} (0 to {seen - 1}), but the number stated is {stated}",
        )
    where = placement if placement is not None else drawing.placement
    if where is None or found is None:
        return found, seen
    try:
        made = placed(where, schedule.devices, found.stages)
    except InputError as error:
        report.error(error.code, str(error))
        return found, seen
    if (made.devices, made.stages) != (found.devices, found.stages):
        findings.error(
            "stage-count",
            f"the file has {counted(found.stages, 'stage')} on {counted(found.devices, 'device')}, but the placement "
            f"{made} has {made.stages} on {made.devices}",
        )
        return found, seen
    return made, seen


def detect(content: str) -> tuple[str, Report]:
    """The dialect in which most entries of a file's beginning make sense, with a warning where two fit."""
    sample = content[:_SAMPLE]
    if len(content) > _SAMPLE:  # leave out the entry that is cut
        sample = sample[: max(sample.rfind(separator) for separator in ", \t\n")]
    candidates = [torch_csv, text] if "," in sample else [text, torch_csv]
    if printed.fits(sample):
        candidates.insert(0, printed)
    candidates.append(megatron)
    scores = []
    for candidate in candidates:
        known = [candidate.accepts(word) for line in sample.splitlines() for word in candidate.words(line)]
        scores.append((sum(known), sum(known) - len(known)))
    best = candidates[scores.index(max(scores))] if any(known for known, _ in scores) else candidates[0]
    report = Report()
    if best is torch_csv:
        return torch_csv.letters(content)
    if best is text and scores[0] == scores[1] and scores[0][0]:
        report.warning("dialect", "read as text; one entry a line fits torch's CSV too (settle it with --dialect)")
    return best.DIALECT, report
