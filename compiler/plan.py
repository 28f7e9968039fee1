"""Plans: a schedule lowered to instruction streams, with the problem it solves and its certificate, as one file."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from . import files
from .certificate import Certificate, check
from .diagnostic import Report
from .errors import CertificateError, InputError, InvalidScheduleError
from .instruction import Compute, Stream
from .lowering import lower
from .operation import Pair
from .planfile import PlanFile, PlanPlaces, located
from .problem import Problem
from .schedule import Schedule
from .simulation import Timeline, simulate
from .streams import verify_streams
from .verification import examine, require_valid
from .wording import counted

CHECK_SECONDS = 120.0
"""The most time that checking the certificate of a file may take."""


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
        """Verify a schedule, lower it, and verify the streams. Raises InvalidScheduleError, and CertificateError where
        the schedule is better than the lower bound allows: such a bound is false."""
        require_valid(problem, schedule)
        plan = cls(problem, schedule, lower(problem, schedule), certificate, warnings)
        report = verify_streams(problem, plan.streams)
        if not report.valid:
            raise InvalidScheduleError(report)
        if certificate.lower_bound > plan.value * (1 + 1e-9):
            raise CertificateError(f"the bound {certificate.lower_bound:.10g} is above the value {plan.value:.10g}")
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
            f"{self.schedule.method}: {counted(problem.devices, 'device')}, {counted(problem.stages, 'stage')} "
            f"({problem.placement.kind}), {counted(problem.microbatches, 'micro-batch')}",
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

    def _file(self) -> PlanFile:
        problem, timeline = self.problem, self.timeline
        return PlanFile(
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
        files.write(path, self._file().text())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan and verify it again, but for the search behind its lower bound: `debubble verify` repeats that.

        Raises InputError when the file cannot be understood, InvalidScheduleError when what it holds is not safe.
        """
        reading = read(path, certified=False)
        if not reading.report.valid:
            raise InvalidScheduleError(reading.report)
        return reading.plan


class Reading(NamedTuple):
    """A plan file: the plan, everything that is wrong with it, and its timeline where it can be executed."""

    plan: Plan
    report: Report
    timeline: Timeline | None


def read(path: str | os.PathLike[str], *, certified: bool = True) -> Reading:
    """Read a plan file and judge it; what its bound rests on is checked unless `certified` is False.

    Raises InputError when the file cannot be understood.
    """
    content, places = PlanFile.read(path), PlanPlaces(path)
    try:
        problem = content.problem()
        orders, streams = content.programs(places)
    except InputError as error:
        error.source = os.fspath(path)
        raise
    plan = Plan(problem, Schedule(orders, content.method), streams, content.certificate, content.warnings)
    found, execution = examine(problem, plan.schedule)
    report = located(found, places.step)
    report.merge(located(verify_streams(problem, streams), places.instruction))
    timeline = None if execution is None else Timeline(problem, plan.schedule, execution)
    if report.valid and timeline is not None:
        _check_order(plan, report, places)
        _check_claims(content, timeline, report, places)
        _check_certificate(plan, report, places, certified)
    if content.digest != content.seal():
        message = "the file was changed after it was written: its digest does not match its content"
        report.error("digest", message, **places.of("digest"))
    return Reading(plan, report, timeline)


def _check_order(plan: Plan, report: Report, places: PlanPlaces) -> None:
    """The streams compute what the orders say."""
    for device, (order, stream) in enumerate(zip(plan.schedule.orders, plan.streams, strict=True)):
        computed = [(index, each.step) for index, each in enumerate(stream) if type(each) is Compute]
        if tuple(step for _, step in computed) == order:
            continue
        differing = (index for (index, step), expected in zip(computed, order, strict=False) if step != expected)
        index = next(differing, None)
        message = f"the stream computes {len(computed)} steps, but the order has {len(order)}"
        if index is not None:
            message = f"{stream[index]}: the order has another step in its place"
        report.error("stream-order", message, device=device, index=index, **places.instruction(device, index))


def _check_claims(content: PlanFile, timeline: Timeline, report: Report, places: PlanPlaces) -> None:
    """The numbers that the plan states are those of its orders."""
    claims: list[tuple[tuple[str | int, ...], float, float]] = [
        (("makespan",), content.makespan, timeline.makespan),
        (("span",), content.span, timeline.span),
    ]
    peaks = timeline.peak_memory
    if len(content.peak_memory) != len(peaks):
        message = f"the plan claims {len(content.peak_memory)} peaks of memory, for {len(peaks)} devices"
        report.error("false-claim", message, **places.of("peak_memory"))
    claims += [
        (("peak_memory", device), claimed, found)
        for device, (claimed, found) in enumerate(zip(content.peak_memory, peaks, strict=False))
    ]
    for (key, *device), claimed, found in claims:
        if not math.isclose(claimed, found, rel_tol=1e-9, abs_tol=1e-12):
            where = "".join(f" of device {number}" for number in device)
            message = f"the plan claims {key}{where} = {claimed:g}, but it is {found:g}"
            report.error("false-claim", message, **places.of(key, *device))
    bound = content.certificate.lower_bound
    if bound > timeline.value * (1 + 1e-9):
        message = f"the certificate claims a bound of {bound:g}, above the value {timeline.value:g}"
        report.error("false-claim", message, **places.of("certificate", "lower_bound"))


def _check_certificate(plan: Plan, report: Report, places: PlanPlaces, certified: bool) -> None:
    """The bound follows from its witness (looked at if `certified`), or it is a named solver's word."""
    certificate = plan.certificate
    known = certificate.proof == "checked" or (certificate.proof == "solver" and certificate.backend is not None)
    if not known and certificate.lower_bound > 0:
        message = f"a bound is checked or the word of a named solver, not {certificate.proof!r}"
        report.error("false-certificate", message, **places.of("certificate"))
    elif certificate.proof == "solver" and certificate.lower_bound > 0:
        message = f"the lower bound rests on the word of {certificate.backend}: it was not recomputed"
        report.warning("unchecked-bound", message)
    elif certified and report.valid and certificate.lower_bound > 0:
        try:
            check(plan.problem, certificate, deadline=time.monotonic() + CHECK_SECONDS)
        except CertificateError as error:
            report.error("false-certificate", str(error), **places.of("certificate"))


def _recomputed(problem: Problem) -> str:
    """Which forwards are repeated."""
    if problem.recompute == "all":
        return "every forward, before its backward"
    share = sum(map(sum, problem.chosen)) / (problem.stages * problem.microbatches)
    return f"{problem.recompute} of the micro-batches in flight where most are, {share:.0%} of all forwards"


def _memory_line(problem: Problem, peaks: list[float]) -> str:
    unit = f" {problem.profile.memory_unit}" if problem.profile.memory_unit else ""
    shown = [
        f"{peak:g}" if math.isinf(cap) else f"{peak:g}/{cap:g}" for peak, cap in zip(peaks, problem.caps, strict=True)
    ]
    if len(shown) > 8:
        shown = [*shown[:4], "...", *shown[-3:]]
    return " ".join(shown) + unit + (", static memory included" if any(problem.static_memory) else "")
