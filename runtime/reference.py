"""The reference of `--check`: the same model in one process, one micro-batch after another, with plain autograd.

It shares with the pipeline the model, the cut of the batch and the random numbers, and nothing that executes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .microbatch import cut, seeded, shares, unwrapped
from .workload import Workload


class Reference:
    """Holds every stage of a workload, with the weights that `Workload.build` gives them."""

    def __init__(self, workload: Workload, stages: int, microbatches: int, device: torch.device, *, seed: int) -> None:
        self.modules = [workload.build(index, stages, seed=seed).to(device) for index in range(stages)]
        parameters = {id(p): p for module in self.modules for p in module.parameters()}
        self._optimizer = workload.optimizer(parameters.values()) if workload.optimizer else None
        self._loss = workload.loss
        self._microbatches, self._device, self._seed = microbatches, device, seed
        self._steps = 0

    def step(self, inputs: Any, targets: Any) -> float:
        """Fill the gradients with those of one batch and return its loss."""
        for module in self.modules:
            module.zero_grad()
        wanted = cut(targets, self._microbatches, "targets")
        total = 0.0
        for microbatch, weight in enumerate(shares(wanted)):
            values = cut(inputs, self._microbatches, "inputs")[microbatch]
            for index, module in enumerate(self.modules):
                with seeded(self._seed, self._steps, index, microbatch, self._device):
                    result = module(*values)
                values = result if isinstance(result, tuple) else (result,)
            loss = self._loss(unwrapped(values), unwrapped(wanted[microbatch]))
            (loss * weight).backward()
            total += float(loss.detach()) * weight
        self._steps += 1
        return total

    def update(self) -> None:
        """Let the optimizer, if there is one, take its step."""
        if self._optimizer is not None:
            self._optimizer.step()


def gradients(module: nn.Module) -> list[torch.Tensor]:
    """The gradient of every trained parameter, zero where there is none."""
    return [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in module.parameters()
        if parameter.requires_grad
    ]


def relative_error(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest max|found - expected| / max|expected| of any tensor; where all expected is 0, max|found|."""
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.numel():
            scale = float(other.abs().max())
            worst = max(worst, float((one - other).abs().max()) / (scale or 1.0))
    return worst
