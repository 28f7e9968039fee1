"""Weights that live in several places: the two copies of a stage in a bidirectional plan, tied parameters, replicas.

Their gradients of one step are summed at its end, and then added to what earlier steps left, which is summed already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import nn

from ..compiler.errors import InputError
from ..compiler.plan import Plan
from .handshake import anyone
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


BUCKET_BYTES = 32 * 2**20
"""Replicas average gradients in messages of about this size."""


class Copies:
    """The parameters of one rank that have copies; `replicas` are the ranks that hold its stages in other pipelines."""

    def __init__(
        self,
        plan: Plan,
        modules: Mapping[int, nn.Module],
        ties: Sequence[Tie],
        replicas: dist.ProcessGroup | None,
        transport: Transport,
    ) -> None:
        self._plan, self._modules, self._replicas, self._transport = plan, modules, replicas, transport
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
        if self._replicas is not None:
            for stage, module in self._modules.items():
                for name, parameter in module.named_parameters():
                    first = parameter.detach().clone()
                    dist.broadcast(first, group_src=0, group=self._replicas)
                    if not torch.equal(first, parameter):
                        trouble = f"{name} of stage {stage} differs from that of the first replica"
            trouble = anyone(self._replicas, trouble)
        if self._plan.problem.devices > 1:
            trouble = anyone(self._transport.group, trouble)
        if trouble is not None:
            raise InputError(trouble)

    def _equal(self, parameter: nn.Parameter, other: nn.Parameter | int) -> bool:
        value = parameter.detach()
        return torch.equal(value, self._transport.exchange(value, other) if isinstance(other, int) else other)

    def begin(self) -> None:
        """Put the gradients of earlier steps aside."""
        shared = [p for stage, _ in self._stages for p in _trained(self._modules[stage])]
        if self._replicas is not None:
            shared += self._all()
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
        """Sum the gradients of tied parameters, average over replicas, and bring those of earlier steps back."""
        for parameter, other in self._ties:
            own = _gradient(parameter)
            if isinstance(other, int):
                parameter.grad = own + self._transport.exchange(own, other)
            else:
                parameter.grad = own + _gradient(other)
                other.grad = parameter.grad.clone()
        if self._replicas is not None:
            self._average(self._replicas)
        for parameter, earlier in self._earlier:
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else parameter.grad + earlier
        self._earlier = []

    def _all(self) -> list[nn.Parameter]:
        return list({id(p): p for module in self._modules.values() for p in _trained(module)}.values())

    def _average(self, replicas: dist.ProcessGroup) -> None:
        """Average all gradients over the replicas, a bucket of one dtype at a time."""
        bucket: list[nn.Parameter] = []
        size = 0
        parameters = sorted(self._all(), key=lambda parameter: str(parameter.dtype))  # stable: the same on all
        for parameter, following in zip_longest(parameters, parameters[1:]):
            bucket.append(parameter)
            size += parameter.nbytes
            if following is None or following.dtype != parameter.dtype or size > BUCKET_BYTES:
                gradients = [_gradient(p) for p in bucket]
                flat = torch.cat([gradient.flatten() for gradient in gradients])
                self._transport.sum(flat, replicas)
                flat /= dist.get_world_size(replicas)
                parts = flat.split([gradient.numel() for gradient in gradients])
                for p, part in zip(bucket, parts, strict=True):
                    p.grad = part.view_as(p)
                bucket, size = [], 0

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
