"""Micro-batches: cutting a global batch, weighting its parts, and seeding each of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

from ..compiler.errors import InputError

Tensors: TypeAlias = tuple[torch.Tensor, ...]


def as_tuple(value: Any, what: str) -> Tensors:
    """A tensor, or a tuple or list of them, as a tuple. Raises InputError for anything else, naming `what`."""
    tensors = (value,) if isinstance(value, torch.Tensor) else value
    if not isinstance(tensors, tuple | list) or not all(isinstance(item, torch.Tensor) for item in tensors):
        raise InputError(f"{what} must be a tensor or a tuple of tensors, not {type(value).__name__}")
    return tuple(tensors)


def unwrapped(tensors: Tensors) -> Any:
    """What a user's function is given: the tensor itself where there is only one."""
    return tensors[0] if len(tensors) == 1 else tensors


def cut(batch: Any, microbatches: int, what: str) -> list[Tensors]:
    """Cut along the first dimension into parts whose sizes differ by at most one, the larger ones first.

    Raises InputError when there are fewer rows than micro-batches, or tensors of different lengths.
    """
    tensors = as_tuple(batch, what)
    rows = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors}
    if len(rows) != 1:
        raise InputError(f"{what}: the tensors must have one first dimension, not {sorted(rows)}", code="batch-size")
    if min(rows) < microbatches:
        raise InputError(
            f"{what}: a batch of {min(rows)} cannot be cut into {microbatches} micro-batches", code="batch-size"
        )
    return list(zip(*(torch.tensor_split(tensor, microbatches) for tensor in tensors), strict=True))


def shares(parts: list[Tensors]) -> list[float]:
    """The weight of each micro-batch's mean loss, so that their sum is the mean over the whole batch."""
    rows = [part[0].shape[0] for part in parts]
    return [count / sum(rows) for count in rows]


def restored_generators(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Restores the random generators of the CPU and of a CUDA device at its end."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


@contextlib.contextmanager
def seeded(seed: int, step: int, stage: int, microbatch: int, device: torch.device) -> Iterator[None]:
    """Random numbers that depend on nothing but the first four, so that the order of execution cannot change them.

    The generators of the CPU and of `device` are restored afterwards.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{stage}/{microbatch}".encode(), digest_size=8).digest()
    with restored_generators(device):
        torch.manual_seed(int.from_bytes(digest) >> 1)
        yield
