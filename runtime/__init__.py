"""The runtime: executes plans with torch.distributed.

    Pipeline        runs the stages of one rank as a plan says
    Workload        a model, its data and its loss, as `debubble run` takes them
    run             trains a workload on local processes, or as a rank of torchrun or SLURM
    RunResult       what that gave
    Trace           what the ranks did and when, as a part of it
    measure         measures the profile of a workload on this machine
    Measurement     what that gave

What needs torch is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .job import RunResult
from .launch import run
from .trace import Trace

if TYPE_CHECKING:
    from .measurement import Measurement, measure
    from .pipeline import Pipeline
    from .workload import Workload

__all__ = ["Measurement", "Pipeline", "RunResult", "Trace", "Workload", "measure", "run"]

_MODULES = {"Measurement": "measurement", "Pipeline": "pipeline", "Workload": "workload", "measure": "measurement"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
