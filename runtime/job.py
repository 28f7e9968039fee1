"""A job: what every process of a run is told, and what comes out of it."""

from __future__ import annotations

from typing import Any

import msgspec

TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}
"""By the least precise dtype of the parameters, the relative error of the gradients that `--check` lets pass."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Train `model` (FILE.py:FUNCTION) for some steps of `plan` (a file); waits end after `timeout` seconds."""

    plan: str
    model: str
    steps: int
    check: bool
    seed: int
    timeout: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a process ended. `consequence` where the failure of another rank is the likely cause."""

    message: str
    bad_input: bool
    consequence: bool


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave: `losses` and `step_seconds` one a step, `peak_memory` in bytes, one per device.

    `gradient_error` is the largest relative error of a gradient against a single-process run, where that was asked
    for; `ok` says that it, and the loss's, are within the tolerance. `predicted_step` is the plan's makespan in the
    time unit of its profile. On a CPU `peak_memory` counts the tensors that autograd holds for micro-batches.
    """

    ok: bool
    losses: list[float]
    step_seconds: list[float]
    gradient_error: float | None
    predicted_step: float
    peak_memory: list[int]

    def as_json(self) -> dict[str, Any]:
        """The keys that `debubble run --json` prints."""
        return {field: getattr(self, field) for field in self.__struct_fields__}
