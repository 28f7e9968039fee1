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
from collections.abc import Iterator, Set
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional

from ..compiler.errors import RunError

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

    @torch.no_grad()
    def accumulate(self, hooked: Set[nn.Parameter]) -> None:
        """Compute the gradients and add them to the parameters', layer by layer.

        Those of `hooked` parameters go through autograd, which runs the hooks. The others are added in place, as
        autograd would add them: the product and the sum are then one operation, which costs less than half as much.
        """
        while self._pending:
            weight, bias, inputs, gradient = self._pending.pop()
            rows, columns = gradient.reshape(-1, gradient.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
            del inputs, gradient
            if weight.requires_grad:
                held = weight.grad
                if weight not in hooked and held is not None and held.dtype == rows.dtype and not held.is_sparse:
                    held.addmm_(rows.t(), columns)
                else:
                    _add(weight, (rows.t() @ columns).to(weight.dtype), hooked)
            if bias is not None and bias.requires_grad:
                _add(bias, rows.sum(0).to(bias.dtype), hooked)


def _add(parameter: nn.Parameter, gradient: torch.Tensor, hooked: Set[nn.Parameter]) -> None:
    if parameter in hooked:
        torch.autograd.backward(parameter, gradient)
    elif parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


def _hooked(parameter: nn.Parameter) -> bool:
    """Whether somebody wants to be told of the parameter's gradient.

    Hooks on the node that accumulates it cannot be seen; but they live only as long as somebody keeps that node, which
    otherwise is made anew for every graph, without the mark that is left on it here.
    """
    if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
        return True
    node: Any = get_gradient_edge(parameter).node
    node.metadata["debubble"] = True
    del node
    again: Any = get_gradient_edge(parameter).node
    return "debubble" in again.metadata


class Splitter:
    """Switches the linear layers of one stage between ordinary and split execution."""

    def __init__(self, module: nn.Module) -> None:
        self._layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear) and _separable(layer)]
        self._splitting = False
        self._deferral: Deferral | None = None
        self._hooked: Set[nn.Parameter] = frozenset()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Put the replacement on the layers, and take it off at the end: a copy of the module never carries it."""
        parameters = {
            parameter for layer in self._layers for parameter in layer.parameters() if parameter.requires_grad
        }
        self._hooked = {parameter for parameter in parameters if _hooked(parameter)}
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

    def accumulate(self, deferral: Deferral) -> None:
        """The W of a deferral."""
        deferral.accumulate(self._hooked)

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
    weight, bias = layer.weight, layer.bias
    if splitter.splits(input, weight):
        return _SplitLinear.apply(input, (weight, bias), splitter)
    return functional.linear(input, weight, bias)


class _SplitLinear(torch.autograd.Function):
    """A linear layer whose backward gives the gradient of its input alone and defers the rest.

    Its parameters come in a tuple, which autograd does not look into, so they are not part of the graph.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, parameters: tuple[nn.Parameter, nn.Parameter | None], splitter: Splitter
    ) -> torch.Tensor:
        weight: torch.Tensor
        weight, bias = parameters
        ctx.parameters, ctx.splitter, ctx.dtype = parameters, splitter, inputs.dtype
        device = inputs.device.type
        if torch.is_autocast_enabled(device):  # the casts that autograd would find around the product
            dtype = torch.get_autocast_dtype(device)
            inputs, weight = (t if t.dtype == torch.float64 else t.to(dtype) for t in (inputs, weight))
        ctx.save_for_backward(inputs, weight)
        ctx.set_materialize_grads(False)
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None]:
        if gradient is None:
            return None, None, None
        inputs, weight = ctx.saved_tensors
        ctx.splitter.defer((*ctx.parameters, inputs, gradient))
        return (gradient @ weight).to(ctx.dtype), None, None
