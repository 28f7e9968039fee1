"""A job: what every process of a run is told, and what comes out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..compiler.errors import InputError
from .trace import Trace

TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}
"""By the least precise dtype of the parameters, the relative error of the gradients that `--check` lets pass."""


def model_file(reference: str) -> tuple[str, str]:
    """The file and the function that FILE.py:FUNCTION names. Raises InputError when there is no such file."""
    name, colon, function = reference.rpartition(":")
    if not colon or not name or not function:
        raise InputError(f"the model {reference!r} does not name a function", hint="write it as FILE.py:FUNCTION")
    if not Path(name).is_file():
        raise InputError("there is no such file", code="unreadable", source=name)
    return name, function


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Train `model` (FILE.py:FUNCTION) for some steps of `plan` (a file); waits end after `timeout` seconds.

    Without a model the plan is emulated. `trace` asks for a record of the last step.
    """

    plan: str
    model: str | None
    steps: int
    check: bool
    seed: int
    timeout: float
    trace: bool


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a process ended. `consequence` where the failure of another rank is the likely cause."""

    message: str
    bad_input: bool
    consequence: bool


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave: `losses` and `step_seconds` one a step, `peak_memory` in bytes, one per device.

    `gradient_error` is the largest relative error of a gradient against a single-process run, where that was asked
    for; `ok` says that it, and the loss's, are within the tolerance. `predicted_step` is the plan's makespan in the
    time unit of its profile, and `unit_seconds` what one unit takes, where that is known. `counted` says what
    `peak_memory` counts: on a CPU the tensors that autograd holds for micro-batches, on a GPU weights, too. `trace` is
    a record of the last step, where one was asked for.
    """

    ok: bool
    losses: list[float]
    step_seconds: list[float]
    gradient_error: float | None
    predicted_step: float
    peak_memory: list[int]
    counted: str = ""
    unit_seconds: float | None = None
    trace: Trace | None = None

    def as_json(self) -> dict[str, Any]:
        """The keys that `debubble run --json` prints."""
        return {field: getattr(self, field) for field in self.__struct_fields__ if field != "trace"}
