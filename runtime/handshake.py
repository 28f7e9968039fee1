"""The handshake before the first step: all ranks agree on what they run, and learn what passes between stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..compiler.errors import InputError
from ..compiler.plan import Plan
from .microbatch import Tensors
from .transport import Transport


class Form(NamedTuple):
    """What is known of a tensor before it arrives."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    differentiable: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Form:
        return cls(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


Forms = tuple[Form, ...]


def check_stages(plan: Plan, held: Sequence[Sequence[int]]) -> None:
    """Refuse a model that is cut or placed in another way than the plan. `held[d]` are the stages of device d."""
    placement = plan.problem.placement
    highest = max((stage for stages in held for stage in stages), default=-1)
    if highest >= placement.stages:
        owner = next(device for device, stages in enumerate(held) if highest in stages)
        raise InputError(
            f"the plan has {placement.stages} stages, but the model is cut into {highest + 1} or more: "
            f"stage {highest} is on rank {owner}",
            code="stage-count",
        )
    for device, expected in enumerate(placement.copies):
        for stage in expected:
            if stage not in held[device]:
                actual = [rank for rank, stages in enumerate(held) if stage in stages]
                where = f"is on rank {actual[0]}" if actual else "is on no rank"
                raise InputError(
                    f"the plan puts stage {stage} on rank {device}, but it {where}", code="stage-placement"
                )
        for stage in held[device]:
            if stage not in expected:
                raise InputError(
                    f"rank {device} holds stage {stage}, which the plan does not put there", code="stage-placement"
                )


def agree(plan: Plan, transport: Transport, held: Sequence[int], trouble: str | None) -> None:
    """Compare the plan, the placement and the kind of device on all ranks; every rank raises the same InputError.

    `trouble` is what this rank found wrong on its own.
    """
    own = {"digest": plan.digest, "stages": sorted(held), "device": transport.device.type, "trouble": trouble}
    gathered: list[dict[str, Any]] = [own]
    if plan.problem.devices > 1:
        gathered = [{} for _ in range(plan.problem.devices)]
        dist.all_gather_object(gathered, own, group=transport.group)
    for rank, other in enumerate(gathered):
        if other["trouble"] is not None:
            raise InputError(f"rank {rank}: {other['trouble']}")
    for key, what in (("digest", "another plan"), ("device", "another kind of device")):
        for rank, other in enumerate(gathered):
            if other[key] != gathered[0][key]:
                raise InputError(
                    f"rank {rank} has {what} than rank 0: {other[key]}, not {gathered[0][key]}", code="disagreement"
                )
    check_stages(plan, [other["stages"] for other in gathered])


def anyone(group: dist.ProcessGroup | None, trouble: str | None) -> str | None:
    """The first trouble of any rank of the group, told to all."""
    troubles: list[str | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(troubles, trouble, group=group)
    return next((f"rank {rank}: {found}" for rank, found in enumerate(troubles) if found is not None), None)


def learn_forms(
    plan: Plan,
    transport: Transport,
    forward: Callable[[int, int, Tensors], Tensors],
    inputs: Sequence[Tensors] | None,
) -> dict[tuple[int, int], Forms]:
    """By (stage, micro-batch), the forms of a stage's outputs, for the boundaries that this rank is part of.

    Every stage but the last runs `forward(stage, microbatch, inputs)` once for each combination of forms that its
    micro-batches bring, and hands the outputs on. On the way back an empty message opens the other channel.
    """
    problem = plan.problem
    m = problem.microbatches
    half = (m + 1) // 2 if problem.placement.bidirectional else m
    forms: dict[tuple[int, int], Forms] = {}
    for microbatches in (range(half), range(half, m)):
        if microbatches:
            owners = problem.placement.owners(microbatches[0], m)
            examples = _Examples() if inputs is None else _Examples.of({j: inputs[j] for j in microbatches})
            _follow(owners, examples, transport, forward, forms)
    return forms


@dataclass
class _Examples:
    """The forms that each micro-batch brings, and one example of each combination of forms."""

    forms: dict[int, Forms] = field(default_factory=dict)
    tensors: dict[Forms, Tensors] = field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Mapping[int, Tensors]) -> _Examples:
        forms = {microbatch: tuple(map(Form.of, found)) for microbatch, found in tensors.items()}
        return cls(forms, {forms[microbatch]: found for microbatch, found in tensors.items()})

    def passed(self, stage: int, forward: Callable[[int, int, Tensors], Tensors]) -> _Examples:
        first = {form: microbatch for microbatch, form in reversed(self.forms.items())}
        outputs = {form: forward(stage, first[form], example) for form, example in self.tensors.items()}
        return _Examples.of({microbatch: outputs[form] for microbatch, form in self.forms.items()})


def _follow(
    owners: Sequence[int],
    examples: _Examples,
    transport: Transport,
    forward: Callable[[int, int, Tensors], Tensors],
    forms: dict[tuple[int, int], Forms],
) -> None:
    """Pass examples along the stages of one direction, boundary after boundary on all ranks."""
    rank = transport.rank
    for stage, (here, there) in enumerate(pairwise(owners)):
        if here == rank:
            examples = examples.passed(stage, forward)
        if here != there and rank in (here, there):
            if here == rank:
                _send(examples, there, transport)
            else:
                examples = _receive(here, transport)
        if rank in (here, there):
            forms.update({(stage, microbatch): form for microbatch, form in examples.forms.items()})


def _send(examples: _Examples, peer: int, transport: Transport) -> None:
    known = list(examples.tensors)
    text = json.dumps(
        {
            "forms": [
                [[list(f.shape), str(f.dtype).removeprefix("torch."), f.differentiable] for f in k] for k in known
            ],
            "microbatches": [[j, known.index(forms)] for j, forms in examples.forms.items()],
        }
    )
    content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(transport.device)
    transport.isend(torch.tensor([len(content)], device=transport.device), peer).wait()
    transport.isend(content, peer).wait()
    for example in examples.tensors.values():
        for tensor in example:
            transport.isend(tensor.detach().contiguous(), peer).wait()
    transport.irecv(torch.empty(1, dtype=torch.int64, device=transport.device), peer).wait()


def _receive(peer: int, transport: Transport) -> _Examples:
    length = torch.empty(1, dtype=torch.int64, device=transport.device)
    transport.irecv(length, peer).wait()
    content = torch.empty(int(length), dtype=torch.uint8, device=transport.device)
    transport.irecv(content, peer).wait()
    described = json.loads(bytes(content.tolist()))
    known = [tuple(Form(tuple(s), getattr(torch, d), r) for s, d, r in forms) for forms in described["forms"]]
    tensors: dict[Forms, Tensors] = {}
    for forms in known:
        tensors[forms] = tuple(torch.empty(f.shape, dtype=f.dtype, device=transport.device) for f in forms)
        for form, tensor in zip(forms, tensors[forms], strict=True):
            transport.irecv(tensor, peer).wait()
            tensor.requires_grad_(form.differentiable)
    transport.isend(torch.zeros(1, dtype=torch.int64, device=transport.device), peer).wait()
    return _Examples({j: known[index] for j, index in described["microbatches"]}, tensors)
