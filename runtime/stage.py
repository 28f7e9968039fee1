"""One stage of the model on this rank: its forwards and backwards by micro-batch, with plain autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..compiler.errors import RunError
from .memory import HeldMemory
from .microbatch import Tensors, as_tuple, restored_generators, unwrapped
from .split import Deferral, Splitter

_AS_EVER = contextlib.nullcontext()


@dataclass
class _Live:
    """What a micro-batch holds between its forward and its last backward."""

    inputs: Tensors
    outputs: Tensors
    split: bool
    deferral: Deferral | None = None
    gradients: Tensors | None = None


class Stage:
    """Runs `module` forward and backward. The graph of a micro-batch is freed by its B or BW, what B deferred by W.

    Where no input needs a gradient, as on stage 0, B has nothing to compute and W is the whole backward.
    `loss`, on the last stage, turns output and target into the loss, which is then the stage's only output.
    """

    def __init__(self, number: int, module: nn.Module, loss: Callable[[Any, Any], torch.Tensor] | None = None) -> None:
        self.number = number
        self.module = module
        self._loss = loss
        self._splitter = Splitter(module)
        self._live: dict[int, _Live] = {}
        self.memory: HeldMemory | None = None
        """Counts what is held, where it is set."""

    def installed(self) -> contextlib.AbstractContextManager[None]:
        """The state in which split forwards and backwards can run."""
        return self._splitter.installed()

    def try_forward(self, inputs: Tensors, keywords: Mapping[str, Any], device: torch.device) -> Tensors:
        """The outputs of one forward that leaves no trace: random generators and buffers are restored."""
        saved = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        with torch.enable_grad(), restored_generators(device):
            outputs = as_tuple(self.module(*inputs, **keywords), f"the output of stage {self.number}")
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)
        return tuple(output.detach().requires_grad_(output.requires_grad) for output in outputs)

    def forward(
        self,
        microbatch: int,
        inputs: Tensors,
        *,
        differentiable: tuple[bool, ...],
        split: bool,
        recompute: bool = False,
        target: Tensors | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> Tensors:
        """Run the module and return its outputs, detached. `differentiable` says which inputs need gradients,
        `split` that B and W will follow instead of BW, `recompute` that only the inputs are kept until the backward,
        which runs the module again (and the loss), with the same random numbers."""
        leaves = tuple(
            tensor.detach().requires_grad_() if needed else tensor.detach()
            for tensor, needed in zip(inputs, differentiable, strict=True)
        )
        split = split and any(differentiable)
        key = (self.number, microbatch)
        splitting = self._splitter.splitting() if split else _AS_EVER
        saving = _AS_EVER if self.memory is None else self.memory.saving(key)
        with splitting, saving:
            if recompute and torch.is_grad_enabled():
                outputs = checkpoint(self._run, leaves, target, keywords, use_reentrant=False)
            else:
                outputs = self._run(leaves, target, keywords)
        if torch.is_grad_enabled():
            self._live[microbatch] = _Live(leaves, outputs, split)
            if self.memory is not None:
                self.memory.hold(key, (*leaves, *outputs))
        return tuple(apart(output.detach(), leaves) for output in outputs)

    def _run(self, inputs: Tensors, target: Tensors | None, keywords: Mapping[str, Any] | None) -> Tensors:
        """The outputs of the module, or the loss."""
        outputs = as_tuple(self.module(*inputs, **(keywords or {})), f"the output of stage {self.number}")
        if self._loss is not None and target is not None:
            outputs = (self._loss(unwrapped(outputs), unwrapped(target)),)
            if outputs[0].ndim:
                raise RunError(f"the loss must be a scalar, not a tensor of shape {tuple(outputs[0].shape)}")
        return outputs

    def backward(self, microbatch: int, gradients: Tensors) -> Tensors:
        """BW: the gradients of the inputs that need one; the parameters' are accumulated."""
        found = self._differentiate(self._live.pop(microbatch), gradients)
        self._release(microbatch)
        return found

    def backward_input(self, microbatch: int, gradients: Tensors) -> Tensors:
        """B: the gradients of the inputs that need one; the weight gradients that can wait are deferred."""
        live = self._live[microbatch]
        if not live.split:
            live.gradients = gradients
            if self.memory is not None:
                self.memory.hold((self.number, microbatch), gradients)
            return ()
        live.deferral = Deferral()
        with self._splitter.splitting(live.deferral):
            found = self._differentiate(live, gradients)
        live.inputs = live.outputs = ()
        if self.memory is not None:
            key = (self.number, microbatch)
            self.memory.hold(key, live.deferral.tensors())  # on top of the graph, which is freed only now
            self.memory.release(key)
            self.memory.hold(key, live.deferral.tensors())
        return found

    def backward_weight(self, microbatch: int) -> None:
        """W: what B left."""
        live = self._live.pop(microbatch)
        if live.deferral is not None:
            self._splitter.accumulate(live.deferral)
        elif live.gradients is not None:
            self._differentiate(live, live.gradients)
        self._release(microbatch)

    def _release(self, microbatch: int) -> None:
        if self.memory is not None:
            self.memory.release((self.number, microbatch))

    def _differentiate(self, live: _Live, gradients: Tensors) -> Tensors:
        """`gradients` are those of the outputs that need one, in order."""
        roots = [output for output in live.outputs if output.requires_grad]
        if roots:
            torch.autograd.backward(roots, gradients)
        leaves = [leaf for leaf in live.inputs if leaf.requires_grad]
        found = (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)
        return tuple(apart(gradient, gradients) for gradient in found)


def apart(tensor: torch.Tensor, received: Tensors) -> torch.Tensor:
    """The tensor, copied where it shares memory with one of `received`, whose buffers are used again."""
    storage = tensor.untyped_storage().data_ptr()
    if any(other.untyped_storage().data_ptr() == storage for other in received):
        return tensor.clone()
    return tensor
