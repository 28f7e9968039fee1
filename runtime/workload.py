"""Workloads: the model, the data and the loss of a run, and how to load them from a user's file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..compiler.errors import InputError
from .job import model_file


@dataclass(frozen=True)
class Workload:
    """What to train.

    `stage(index, count)` builds stage `index` of `count`; a rank builds only its own, right after the random seed was
    set from the stage's number. `batch(step, microbatches)` gives the inputs and targets of one global batch, whose
    first dimension is cut into micro-batches; every rank calls it with the same seed and must get the same data.
    `loss(output, target)` is the mean loss of one micro-batch. `optimizer`, where given, makes the optimizer of a
    rank from its parameters; without one, every step starts from the same weights.
    """

    stage: Callable[[int, int], nn.Module]
    batch: Callable[[int, int], tuple[Any, Any]]
    loss: Callable[[Any, Any], torch.Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None

    def build(self, index: int, count: int, *, seed: int) -> nn.Module:
        """Build a stage with weights that depend on nothing but the seed and its number."""
        torch.manual_seed(seed + 1 + index)
        module = self.stage(index, count)
        if not isinstance(module, nn.Module):
            raise InputError(f"stage({index}, {count}) must return a torch.nn.Module, not {type(module).__name__}")
        return module

    def data(self, step: int, microbatches: int, *, seed: int) -> tuple[Any, Any]:
        """The inputs and targets of one step, the same on every rank."""
        torch.manual_seed(seed - 1 - step)
        batch = self.batch(step, microbatches)
        if not isinstance(batch, tuple) or len(batch) != 2:
            raise InputError(f"batch({step}, {microbatches}) must return (inputs, targets)")
        return batch


def load_workload(reference: str) -> Workload:
    """Call the function that `FILE.py:FUNCTION` names. Raises InputError that says what is wrong with it."""
    name, function = model_file(reference)
    path = Path(name).resolve()
    specification = importlib.util.spec_from_file_location(f"debubble_model_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise InputError("this is not a Python file", code="not-python", source=name)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        specification.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(error.msg, code="not-python", source=name, line=error.lineno) from None
    except Exception as error:
        raise InputError(f"importing the file raised {_described(error)}", code="bad-model", source=name) from error
    make = getattr(module, function, None)
    if not callable(make):
        known = ", ".join(key for key, item in vars(module).items() if callable(item) and not key.startswith("_"))
        raise InputError(
            f"there is no function {function!r}",
            code="bad-model",
            source=name,
            hint=f"it has {known}" if known else None,
        )
    try:
        workload = make()
    except Exception as error:
        raise InputError(f"{function}() raised {_described(error)}", code="bad-model", source=name) from error
    if not isinstance(workload, Workload):
        raise InputError(
            f"{function}() must return a debubble.runtime.Workload, not {type(workload).__name__}",
            code="bad-model",
            source=name,
        )
    return workload


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
