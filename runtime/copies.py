"""Weights that live in two places: the two copies of a stage in a bidirectional plan, and tied parameters.

Their gradients of one step are summed at its end, and then added to what earlier steps left, which is summed already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import nn

from ..compiler.errors import InputError
from ..compiler.plan import Plan
from .handshake import settle
from .transport import Channel, Transport

Place: TypeAlias = tuple[int, str]
"""(stage, name of a parameter of its module)."""

Tie: TypeAlias = tuple[Place, Place]


def channels(plan: Plan, ties: Sequence[Tie]) -> set[Channel]:
    """Both directions between neighbouring stages, between the two copies of a stage, and between tied ones."""
    placement = plan.problem.placement
    pairs = set(pairwise(placement.down))
    if placement.up is not None:
        pairs.update(pairwise(placement.up), zip(placement.down, placement.up, strict=True))
    else:
        pairs.update((placement.down[one], placement.down[other]) for (one, _), (other, _) in ties)
    return {channel for a, b in pairs if a != b for channel in ((a, b), (b, a))}


class Copies:
    """The parameters of one rank that have a copy, with the rank that holds it; None: this rank does."""

    def __init__(self, plan: Plan, modules: Mapping[int, nn.Module], ties: Sequence[Tie], transport: Transport) -> None:
        self._plan, self._modules, self._transport = plan, modules, transport
        placement, rank = plan.problem.placement, transport.rank
        self._stages: list[tuple[int, int]] = []
        if placement.up is not None:
            for stage in placement.copies[rank]:
                peers = {placement.down[stage], placement.up[stage]} - {rank}
                self._stages.extend((stage, peer) for peer in peers)
        self._ties: list[tuple[nn.Parameter, nn.Parameter | int]] = []
        self._second: set[int] = set()
        for (one, one_name), (other, other_name) in ties:
            here = [
                modules[stage].get_parameter(name)
                for stage, name in ((one, one_name), (other, other_name))
                if stage in modules
            ]
            if len(here) == 2 and here[0] is not here[1]:
                self._ties.append((here[0], here[1]))
            elif len(here) == 1 and placement.up is not None:
                raise InputError(
                    f"stages {one} and {other} are on different devices, whose weights cannot be tied here"
                )
            elif len(here) == 1:
                self._ties.append((here[0], placement.down[other if one in modules else one]))
            if other in modules and (len(here) == 1 or here[0] is not here[1]):
                self._second.add(id(here[-1]))
        self._earlier: list[tuple[nn.Parameter, torch.Tensor | None]] = []

    def check(self) -> None:
        """Raise an InputError on every rank when a copy does not have the values of the other."""
        trouble = None
        for stage, peer in self._stages:
            for name, parameter in self._modules[stage].named_parameters():
                if not self._equal(parameter, peer):
                    trouble = f"{name} of stage {stage} differs from its copy on rank {peer}"
        for parameter, other in self._ties:
            if not self._equal(parameter, other):
                trouble = "tied parameters must begin with the same values"
        settle(self._transport, self._plan.problem.devices, trouble)

    def _equal(self, parameter: nn.Parameter, other: nn.Parameter | int) -> bool:
        value = parameter.detach()
        return torch.equal(value, self._transport.exchange(value, other) if isinstance(other, int) else other)

    def begin(self) -> None:
        """Put the gradients of earlier steps aside."""
        shared = [p for stage, _ in self._stages for p in _trained(self._modules[stage])]
        shared += [p for parameter, other in self._ties for p in (parameter, other) if isinstance(p, nn.Parameter)]
        self._earlier = [(parameter, parameter.grad) for parameter in {id(p): p for p in shared}.values()]
        for parameter, _ in self._earlier:
            parameter.grad = None

    def reduce(self, stage: int, peer: int) -> None:
        """Sum the gradients of a stage with the other copy's."""
        for parameter in _trained(self._modules[stage]):
            own = _gradient(parameter)
            parameter.grad = own + self._transport.exchange(own, peer)

    def finish(self) -> None:
        """Sum the gradients of tied parameters, and bring those of earlier steps back."""
        for parameter, other in self._ties:
            own = _gradient(parameter)
            if isinstance(other, int):
                parameter.grad = own + self._transport.exchange(own, other)
            else:
                parameter.grad = own + _gradient(other)
                other.grad = parameter.grad.clone()
        for parameter, earlier in self._earlier:
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else parameter.grad + earlier
        self._earlier = []

    def counted(self) -> Iterator[nn.Parameter]:
        """Every weight of the model once, over all ranks: the copy that travels down, the first of tied ones."""
        placement = self._plan.problem.placement
        seen = set(self._second)
        for stage, module in self._modules.items():
            if placement.down[stage] == self._transport.rank:
                for parameter in module.parameters():
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield parameter


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
