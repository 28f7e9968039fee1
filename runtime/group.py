"""The process group of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from .ranks import Rank


@contextlib.contextmanager
def process_group(rank: Rank, timeout: timedelta) -> Iterator[torch.device]:
    """NCCL where every process of this machine has a GPU of its own, gloo otherwise; gives the device."""
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= rank.local_world
    device = torch.device("cuda", rank.local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=rank.rendezvous,
        rank=rank.rank,
        world_size=rank.world,
        timeout=timeout,
    )
    try:
        yield device
    finally:
        dist.destroy_process_group()
