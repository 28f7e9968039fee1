"""Writing schedules in the formats of others."""

from __future__ import annotations

from ..errors import InputError
from ..plan import Plan
from . import communication, text, torch_csv

FORMATS = ("torch-csv", "torch-comms-csv", "text")


def export(plan: Plan, format: str) -> str:
    """The plan as torch's compute-only CSV, its CSV with communication, or the text form.

    Raises InputError when there is no such format, or the format has no words for the plan.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    if format == "text":
        return text.write(plan.schedule, plan.problem)
    if plan.problem.placement.bidirectional:
        raise InputError("torch's CSV has one device per stage, so it cannot hold a bidirectional plan")
    return communication.write(plan.streams) if format == "torch-comms-csv" else torch_csv.write(plan.schedule)
