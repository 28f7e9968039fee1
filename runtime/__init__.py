"""The runtime: executes plans with torch.distributed.

    Pipeline        runs the stages of one rank as a plan says
    Workload        a model, its data and its loss, as `debubble run` takes them
    run             trains a workload on local processes, or as a rank of torchrun or SLURM
    RunResult       what that gave

torch is imported when one of the first two is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .job import RunResult
from .launch import run

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .workload import Workload

__all__ = ["Pipeline", "RunResult", "Workload", "run"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from .pipeline import Pipeline

        return Pipeline
    if name == "Workload":
        from .workload import Workload

        return Workload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
