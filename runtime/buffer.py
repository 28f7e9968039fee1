"""Receive buffers: allocated once, by the slots of the plan, and used again and again."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..compiler.instruction import Receive, Stream
from ..compiler.operation import Operation
from .handshake import Form, Forms
from .microbatch import Tensors

_Slot = tuple[str, int, int]
"""Kind of value, stage boundary, number of the slot."""


def receive_buffers(
    stream: Stream, forms: Mapping[tuple[int, int], Forms], device: torch.device
) -> dict[Operation, Tensors]:
    """By value, the tensors it is received into: views of one buffer for each slot and tensor, as large as needed."""
    wanted: dict[Operation, tuple[_Slot, list[Form]]] = {}
    for receive in stream:
        if isinstance(receive, Receive):
            kind, stage, microbatch = receive.value
            boundary = stage if kind == "F" else stage - 1
            arriving = [f for f in forms[boundary, microbatch] if kind == "F" or f.differentiable]
            wanted[receive.value] = ((kind, boundary, receive.slot), arriving)
    sizes: dict[tuple[_Slot, int, torch.dtype], int] = {}
    for key, arriving in wanted.values():
        for index, form in enumerate(arriving):
            place = (key, index, form.dtype)
            sizes[place] = max(sizes.get(place, 0), torch.Size(form.shape).numel())
    storage = {place: torch.empty(size, dtype=place[2], device=device) for place, size in sizes.items()}
    return {
        value: tuple(
            storage[key, index, form.dtype][: torch.Size(form.shape).numel()].view(form.shape)
            for index, form in enumerate(arriving)
        )
        for value, (key, arriving) in wanted.items()
    }
