"""Writing schedules in the formats of others."""

from __future__ import annotations

from ..errors import InputError
from ..operation import parts
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
    placement, last = plan.problem.placement, plan.problem.stages - 1
    if placement.bidirectional:
        raise InputError("torch's CSV has one device per stage, so it cannot hold a bidirectional plan")
    forwards = [
        operation.microbatch
        for step in plan.schedule.orders[placement.down[last]]
        for operation in parts(step)
        if operation.kind == "F" and operation.stage == last
    ]
    if forwards != sorted(forwards):
        raise InputError(
            "the last stage takes its forwards out of order, and torch's runtime would start backwards from the losses "
            "of other micro-batches",
            hint="debubble run keeps losses by micro-batch",
        )
    return communication.write(plan.streams) if format == "torch-comms-csv" else torch_csv.write(plan.schedule)
