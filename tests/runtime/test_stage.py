"""One stage: a recomputed micro-batch runs its forward again, once, and keeps nothing but its inputs meanwhile."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from debubble.runtime.memory import HeldMemory
from debubble.runtime.stage import Stage

WIDTH = 8


class Counted(nn.Module):
    """Two layers with dropout between them, which count the forwards."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2))
        self.forwards = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        return self.second(nn.functional.dropout(torch.tanh(self.first(x)), 0.5))


def train(*, split: bool, recompute: bool, loss: bool) -> tuple[Counted, torch.Tensor]:
    """The module after a forward and its backward, and the gradient of the input."""
    module, x = Counted(), torch.ones(4, WIDTH, dtype=torch.float64)
    stage = Stage(1, module, nn.functional.mse_loss if loss else None)
    target = (torch.zeros_like(x),) if loss else None
    torch.manual_seed(1)
    with stage.installed():
        (output,) = stage.forward(0, (x,), differentiable=(True,), split=split, recompute=recompute, target=target)
        gradients = (torch.ones_like(output),)
        (found,) = stage.backward_input(0, gradients) if split else stage.backward(0, gradients)
        if split:
            stage.backward_weight(0)
    return module, found


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_gradients_are_the_same(split: bool, loss: bool) -> None:
    """With the same dropout, to the bit."""
    (plain, expected), (again, found) = (train(split=split, recompute=r, loss=loss) for r in (False, True))
    assert torch.equal(found, expected)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_forward_runs_once_more_where_it_is_recomputed(recompute: bool, split: bool) -> None:
    """Never more than once, however B and W share the work."""
    module, _ = train(split=split, recompute=recompute, loss=True)
    assert module.forwards == 1 + recompute


def test_only_input_and_output_are_held() -> None:
    """Until the backward, of all that the layers save."""
    module, x = Counted(), torch.ones(4, WIDTH, dtype=torch.float64)
    stage = Stage(1, module)
    stage.memory = HeldMemory([module])
    with stage.installed():
        stage.forward(0, (x,), differentiable=(True,), split=False, recompute=True)
    assert stage.memory.current == 2 * x.nbytes


def test_without_gradients_nothing_is_prepared() -> None:
    """An evaluation runs the forward and is done."""
    module, x = Counted(), torch.ones(4, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        Stage(1, module).forward(0, (x,), differentiable=(True,), split=False, recompute=True)
    assert module.forwards == 1
