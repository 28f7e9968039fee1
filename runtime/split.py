"""The split backward: weight gradients of linear layers put off from B to W.

Only what is known to be separable is put off: the weight and bias gradients of modules whose type is exactly
`nn.Linear` and whose weight is a plain parameter. B computes everything else by ordinary autograd, so whatever a stage
contains is right by construction. Zero-bubble runtimes (Megatron-LM's, DualPipe's) split backwards in this way.

The replacement sits on the modules, not in a mode, so it is in force when a checkpoint recomputes. In a split forward a
linear layer takes part in the graph through its input alone: its parameters' hooks run once, in W, with the gradient.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ..compiler.errors import RunError

FLUSH_BYTES = 64 * 2**20
"""W hands gradients to autograd when this much has gathered: few calls for small layers, little memory for large."""

_Pending = tuple[nn.Parameter, nn.Parameter | None, torch.Tensor, torch.Tensor]
"""A weight, its bias, the layer's input and its output gradient."""


class Deferral:
    """The weight gradients that one forward's backward puts off."""

    def __init__(self) -> None:
        self._pending: list[_Pending] = []

    def add(self, pending: _Pending) -> None:
        self._pending.append(pending)

    def tensors(self) -> Iterator[torch.Tensor]:
        """What is held in memory until W."""
        for _, _, inputs, gradient in self._pending:
            yield inputs
            yield gradient

    def accumulate(self) -> None:
        """Compute the gradients and add them to the parameters', through autograd, so that hooks run as ever."""
        parameters: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        size = 0
        self._pending.reverse()
        while self._pending:
            weight, bias, inputs, gradient = self._pending.pop()
            rows = gradient.reshape(-1, gradient.shape[-1])
            if weight.requires_grad:
                parameters.append(weight)
                gradients.append((rows.t() @ inputs.reshape(-1, inputs.shape[-1])).to(weight.dtype))
                size += gradients[-1].nbytes
            if bias is not None and bias.requires_grad:
                parameters.append(bias)
                gradients.append(rows.sum(0).to(bias.dtype))
            del inputs, gradient, rows
            if size > FLUSH_BYTES or not self._pending:
                torch.autograd.backward(parameters, gradients)
                parameters, gradients, size = [], [], 0


class Splitter:
    """Switches the linear layers of one stage between ordinary and split execution."""

    def __init__(self, module: nn.Module) -> None:
        self._layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear) and _separable(layer)]
        self._splitting = False
        self._deferral: Deferral | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Put the replacement on the layers, and take it off at the end: a copy of the module never carries it."""
        for layer in self._layers:
            layer.forward = functools.partial(_forward, layer, self)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.forward

    @contextlib.contextmanager
    def splitting(self, deferral: Deferral | None = None) -> Iterator[None]:
        """Around a forward whose backward will be split, and, with the deferral to fill, around its B: there because
        a checkpoint runs the forward again."""
        self._splitting, self._deferral = True, deferral
        try:
            yield
        finally:
            self._splitting, self._deferral = False, None

    def splits(self, inputs: torch.Tensor, weight: object) -> bool:
        """Whether a linear layer that is called now puts its weight gradient off.

        Not where the input needs no gradient, since the graph would end there; nor where torch.compile traces.
        """
        return (
            self._splitting
            and inputs.requires_grad
            and type(weight) is nn.Parameter
            and weight.requires_grad
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        )

    def defer(self, pending: _Pending) -> None:
        if self._deferral is None:
            raise RunError("a stage whose backward is split must not differentiate its linear layers in its forward")
        self._deferral.add(pending)


def _separable(layer: nn.Linear) -> bool:
    """Exactly nn.Linear, with plain parameters of its own and the forward of its class."""
    return (
        type(layer) is nn.Linear
        and "forward" not in vars(layer)
        and type(layer.weight) is nn.Parameter
        and (layer.bias is None or type(layer.bias) is nn.Parameter)
    )


def _forward(layer: nn.Linear, splitter: Splitter, input: torch.Tensor) -> torch.Tensor:
    if splitter.splits(input, layer.weight):
        return _SplitLinear.apply(input, layer, splitter)
    return functional.linear(input, layer.weight, layer.bias)


class _SplitLinear(torch.autograd.Function):
    """A linear layer whose backward gives the gradient of its input alone and defers the rest.

    The layer is an argument that autograd does not look into, so its parameters are not part of the graph.
    """

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, layer: nn.Linear, splitter: Splitter) -> torch.Tensor:
        weight: torch.Tensor = layer.weight
        ctx.weight, ctx.bias, ctx.splitter, ctx.dtype = layer.weight, layer.bias, splitter, inputs.dtype
        device = inputs.device.type
        if torch.is_autocast_enabled(device):  # the casts that autograd would find around the product
            dtype = torch.get_autocast_dtype(device)
            inputs, weight = (t if t.dtype == torch.float64 else t.to(dtype) for t in (inputs, weight))
        ctx.save_for_backward(inputs, weight)
        ctx.set_materialize_grads(False)
        return functional.linear(inputs, weight, layer.bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None]:
        if gradient is None:
            return None, None, None
        inputs, weight = ctx.saved_tensors
        ctx.splitter.defer((ctx.weight, ctx.bias, inputs, gradient))
        return (gradient @ weight).to(ctx.dtype), None, None
