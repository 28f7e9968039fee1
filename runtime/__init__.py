"""The runtime: executes plans with torch.distributed.

    Pipeline        runs the stages of one rank as a plan says
    Workload        a model, its data and its loss, as `debubble run` takes them
    run             trains a workload on local processes, or as a rank of torchrun or SLURM
    RunResult       what that gave
    Trace           what the ranks did and when, as a part of it

torch is imported when one of the first two is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .job import RunResult
from .launch import run
from .trace import Trace

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .workload import Workload

__all__ = ["Pipeline", "RunResult", "Trace", "Workload", "run"]


def __getattr__(name: str) -> Any:
    if name == "Pipeline":
        from .pipeline import Pipeline

        return Pipeline
    if name == "Workload":
        from .workload import Workload

        return Workload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
