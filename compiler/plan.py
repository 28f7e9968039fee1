"""Plans: a schedule lowered to instruction streams, with the problem it solves and its certificate, as one file."""

from __future__ import annotations

import hashlib
import math
import os
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import msgspec

from . import files
from .certificate import Certificate, check
from .diagnostic import Report
from .errors import CertificateError, InputError, InvalidScheduleError
from .instruction import Compute, Stream, parse
from .lowering import lower
from .operation import Pair, parse_step
from .placement import Placement
from .problem import Problem
from .profile import Profile
from .recomputation import Recompute
from .schedule import Schedule
from .simulation import Timeline, simulate
from .streams import verify_streams
from .verification import require_valid, verify

FORMAT = "debubble.plan/1"

CHECK_SECONDS = 120.0
"""The most time that checking the certificate of a file may take."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The JSON form of a plan. Steps and instructions are written as text: `2F0`, `send 2F0 >3`."""

    format: str = FORMAT
    tool: str
    profile: Profile
    placement: Placement
    microbatches: int
    memory_cap: tuple[float | None, ...]
    objective: str
    backward: str
    recompute: Recompute | msgspec.UnsetType = msgspec.UNSET  # left out where nothing is recomputed
    method: str
    orders: tuple[str, ...]
    streams: tuple[tuple[str, ...], ...]
    makespan: float
    span: float
    peak_memory: tuple[float, ...]
    certificate: Certificate
    warnings: tuple[str, ...] = ()
    digest: str = ""

    def sealed(self) -> _File:
        """The same file, as it reads back, with the digest over all of its other content."""
        bare = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(self, digest="")), type=_File)
        return msgspec.structs.replace(bare, digest=hashlib.sha256(msgspec.json.encode(bare)).hexdigest())


@dataclass(frozen=True)
class Plan:
    """A verified schedule that can be saved, drawn and executed. Make one with `Plan.build` or `Plan.load`."""

    problem: Problem
    schedule: Schedule
    streams: tuple[Stream, ...]
    certificate: Certificate
    warnings: tuple[str, ...] = ()

    @classmethod
    def build(
        cls, problem: Problem, schedule: Schedule, certificate: Certificate, warnings: tuple[str, ...] = ()
    ) -> Plan:
        """Verify a schedule, lower it, and verify the streams. Raises InvalidScheduleError."""
        require_valid(problem, schedule)
        plan = cls(problem, schedule, lower(problem, schedule), certificate, warnings)
        report = verify_streams(problem, plan.streams)
        if not report.valid:
            raise InvalidScheduleError(report)
        return plan

    @cached_property
    def timeline(self) -> Timeline:
        return simulate(self.problem, self.schedule)

    @property
    def value(self) -> float:
        """The objective, makespan or span, in time units."""
        return self.timeline.value

    @property
    def gap(self) -> float:
        return self.certificate.gap(self.value)

    @property
    def status(self) -> str:
        return "optimal" if self.gap == 0 else "feasible"

    def as_json(self) -> dict[str, Any]:
        """The keys that `debubble compile --json` prints."""
        timeline, certificate = self.timeline, self.certificate
        return {
            "status": self.status,
            "proof": certificate.proof,
            "method": self.schedule.method,
            "objective": self.problem.objective,
            "value": timeline.value,
            "makespan": timeline.makespan,
            "span": timeline.span,
            "lower_bound": certificate.lower_bound,
            "bound": certificate.name,
            "gap": None if math.isinf(self.gap) else self.gap,
            "bubble_ratio": timeline.bubble_ratio(),
            "idle_fraction": timeline.idle_fraction,
            "peak_memory": timeline.peak_memory,
            "devices": self.problem.devices,
            "stages": self.problem.stages,
            "microbatches": self.problem.microbatches,
            "recompute": self.problem.recompute,
        }

    def __str__(self) -> str:
        timeline, problem, certificate = self.timeline, self.problem, self.certificate
        time = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
        ratio = timeline.bubble_ratio()
        other, value = ("makespan", timeline.makespan) if problem.objective == "span" else ("span", timeline.span)
        proved = f"optimal for this placement ({problem.placement})" if self.gap == 0 else "not proved optimal"
        gap = "no gap known" if math.isinf(self.gap) else f"gap {self.gap:.2%}"
        lines = [
            f"{self.schedule.method}: {problem.devices} devices, {problem.stages} stages "
            f"({problem.placement.kind}), {problem.microbatches} micro-batches",
            f"  {problem.objective:12} {timeline.value:.7g}{time}, {proved}",
            f"  {other:12} {value:.7g}{time}",
            f"  lower bound  {certificate.lower_bound:.7g}{time}, {gap} ({certificate.proof}): {certificate.reason}",
            f"  bubble ratio {'-' if ratio is None else f'{ratio:.2%}'} (idle time over ideal time); "
            f"idle fraction {timeline.idle_fraction:.2%} (of all device time)",
            f"  peak memory  {_memory_line(problem, timeline.peak_memory)}",
        ]
        if problem.recompute != "none":
            lines.append(f"  recompute    {_recomputed(problem)}")
        if problem.objective == "span":
            lines.append(
                "  note         span holds when no device waits for others between steps; clipping by a global norm, "
                "loss scaling and tied weights do wait"
            )
        if any(isinstance(step, Pair) for order in self.schedule.orders for step in order):
            priced = "by the profile's ratio" if problem.profile.overlapped_pair else "the sum of its parts"
            lines.append(f"  pairs        each takes {priced}; its forward is held before its backward frees")
        return "\n".join(lines + [f"  warning      {warning}" for warning in self.warnings])

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary and the timeline."""
        from .pictures import notebook

        return notebook.draw(str(self), self.timeline)

    def _file(self) -> _File:
        problem, timeline = self.problem, self.timeline
        return _File(
            tool=f"debubble {version('debubble')}",
            profile=problem.profile,
            placement=problem.placement,
            microbatches=problem.microbatches,
            memory_cap=tuple(None if math.isinf(cap) else cap for cap in problem.caps),
            objective=problem.objective,
            backward=problem.backward,
            recompute=msgspec.UNSET if problem.recompute == "none" else problem.recompute,
            method=self.schedule.method,
            orders=tuple(" ".join(map(str, order)) for order in self.schedule.orders),
            streams=tuple(tuple(map(str, stream)) for stream in self.streams),
            makespan=timeline.makespan,
            span=timeline.span,
            peak_memory=tuple(timeline.peak_memory),
            certificate=self.certificate,
            warnings=self.warnings,
        ).sealed()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the whole content: ranks compare it before they run."""
        return self._file().digest

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, one line per stream."""
        encoded = msgspec.json.decode(msgspec.json.encode(self._file()))
        lines = [f"  {_json(key)}: {_top_level(value)}" for key, value in encoded.items()]
        files.write(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan and verify it again, but for the search behind its lower bound: `debubble verify` repeats that.

        Raises InputError when the file cannot be understood, InvalidScheduleError when what it holds is not safe.
        """
        plan, report = read(path, certified=False)
        if not report.valid:
            raise InvalidScheduleError(report)
        return plan


def read(path: str | os.PathLike[str], *, certified: bool = True) -> tuple[Plan, Report]:
    """Read a plan file with everything that is wrong with it, and check its bound unless `certified` is False.

    Raises InputError when it cannot be understood.
    """
    name = os.fspath(path)
    content = files.read_json(path, _File, FORMAT)
    try:
        problem = Problem(
            content.profile,
            content.placement,
            content.microbatches,
            tuple(math.inf if cap is None else cap for cap in content.memory_cap),
            content.objective,
            content.backward,
            "none" if content.recompute is msgspec.UNSET else content.recompute,
        )
        schedule = Schedule.of((map(parse_step, order.split()) for order in content.orders), content.method)
        streams = tuple(tuple(map(parse, stream)) for stream in content.streams)
    except ValueError as error:
        raise InputError(str(error), code="bad-token", source=name) from None
    except InputError as error:
        error.source = name
        raise
    plan = Plan(problem, schedule, streams, content.certificate, content.warnings)
    report = verify(problem, schedule)
    report.merge(verify_streams(problem, streams))
    if report.valid:
        _check_claims(content, plan, report, certified)
    if content.digest != content.sealed().digest:
        report.error("digest", "the file was changed after it was written: its digest does not match its content")
    return plan, report


def _check_claims(content: _File, plan: Plan, report: Report, certified: bool) -> None:
    """What the plan says of itself is what its orders and streams give."""

    for device, (order, stream) in enumerate(zip(plan.schedule.orders, plan.streams, strict=True)):
        if tuple(i.step for i in stream if isinstance(i, Compute)) != order:
            report.error("stream-order", "the stream does not compute what the order says", device=device)
    timeline = plan.timeline
    claims = [("makespan", content.makespan, timeline.makespan), ("span", content.span, timeline.span)]
    if len(content.peak_memory) != len(timeline.peak_memory):
        report.error("false-claim", f"the plan claims {len(content.peak_memory)} peaks of memory")
    claims += [
        (f"peak_memory[{device}]", claimed, found)
        for device, (claimed, found) in enumerate(zip(content.peak_memory, timeline.peak_memory, strict=False))
    ]
    for key, claimed, found in claims:
        if not math.isclose(claimed, found, rel_tol=1e-9, abs_tol=1e-12):
            report.error("false-claim", f"the plan claims {key} = {claimed:g}, but it is {found:g}")
    if plan.certificate.lower_bound > plan.value * (1 + 1e-9):
        message = f"the certificate claims a bound of {plan.certificate.lower_bound:g}, above the value {plan.value:g}"
        report.error("false-claim", message)
    elif certified and plan.certificate.proof == "checked":
        try:
            check(plan.problem, plan.certificate, deadline=time.monotonic() + CHECK_SECONDS)
        except CertificateError as error:
            report.error("false-certificate", str(error))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _top_level(value: Any) -> str:
    """Lists of lists, and lists of long strings, one item a line; everything else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], list | str):
        return "[\n" + ",\n".join(f"    {_json(item)}" for item in value) + "\n  ]"
    return _json(value)


def _recomputed(problem: Problem) -> str:
    """Which forwards are repeated."""
    if problem.recompute == "all":
        return "every forward, before its backward"
    share = sum(map(sum, problem.chosen)) / (problem.stages * problem.microbatches)
    return f"the first {problem.recompute} of the micro-batches in flight on each stage, {share:.0%} of all forwards"


def _memory_line(problem: Problem, peaks: list[float]) -> str:
    unit = f" {problem.profile.memory_unit}" if problem.profile.memory_unit else ""
    shown = [
        f"{peak:g}" if math.isinf(cap) else f"{peak:g}/{cap:g}" for peak, cap in zip(peaks, problem.caps, strict=True)
    ]
    if len(shown) > 8:
        shown = [*shown[:4], "...", *shown[-3:]]
    return " ".join(shown) + unit
