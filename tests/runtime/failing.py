"""Workloads that go wrong: most of them on stage 1, in the third forward, that of micro-batch 1."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from debubble.runtime import Workload


class Failing(nn.Module):
    """A linear layer that fails in its own way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.how, self.calls = how, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 3:
            if self.how == "raise":
                raise ValueError("out of luck")
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                if "BEGUN" in os.environ:
                    Path(os.environ["BEGUN"]).write_text(str(os.getpid()))
                time.sleep(1000)
        return self.linear(x)


def _workload(how: str) -> Workload:
    def stage(index: int, count: int) -> nn.Module:
        return Failing(how if index == 1 else "not")

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(microbatches, 4), torch.randn(microbatches, 4)

    return Workload(stage, batch, nn.functional.mse_loss)


def raises() -> Workload:
    return _workload("raise")


def dies() -> Workload:
    return _workload("die")


def hangs() -> Workload:
    return _workload("hang")


def lacks_rows() -> Workload:
    workload = _workload("not")
    return Workload(workload.stage, lambda step, microbatches: workload.batch(step, microbatches - 1), workload.loss)


class Slow(nn.Linear):
    """Takes its time."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return super().forward(input)


def loads_data() -> Workload:
    workload = _workload("not")
    return Workload(lambda index, count: (nn.Linear if index else Slow)(4, 4), workload.batch, workload.loss)


def returns_a_number() -> int:
    return 3


def breaks() -> Workload:
    raise KeyError("no such model")


NO_FUNCTION = 1
