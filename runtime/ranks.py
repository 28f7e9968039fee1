"""Ranks: which process of a job this is, from the environment of torchrun or SLURM."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..compiler.errors import InputError


@dataclass(frozen=True)
class Rank:
    """One process of `world`; `local` counts those on its machine, of which there are `local_world`.

    `rendezvous` is how they find each other, as torch.distributed's `init_method`.
    """

    rank: int
    world: int
    local: int
    local_world: int
    rendezvous: str


def rank_from_environment(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """The rank that torchrun or a SLURM step gave this process, None where neither did.

    Raises InputError when a variable is missing or not a number.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        world = _number(environment, "WORLD_SIZE")
        local = _number(environment, "LOCAL_RANK", 0)
        local_world = _number(environment, "LOCAL_WORLD_SIZE", 1)
        return Rank(_number(environment, "RANK"), world, local, local_world, "env://")
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
        host = environment.get("MASTER_ADDR") or first_host(nodes)
        port = environment.get("MASTER_PORT") or 20000 + _number(environment, "SLURM_JOB_ID", 0) % 20000
        world = _number(environment, "SLURM_STEP_NUM_TASKS")
        per_node = re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        local = _number(environment, "SLURM_LOCALID", 0)
        rank = _number(environment, "SLURM_PROCID")
        return Rank(rank, world, local, int(per_node[0]) if per_node else 1, f"tcp://{host}:{port}")
    return None


def first_host(nodes: str) -> str:
    """The first name of a SLURM node list such as `gpu[003-007,9],login1`."""
    match = re.match(r"([^\[,]+)(?:\[(\w+))?", nodes)
    if match is None:
        raise InputError(f"cannot read the SLURM node list {nodes!r}", hint="set MASTER_ADDR and MASTER_PORT")
    return match[1] + (match[2] or "")


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdigit():
        raise InputError(f"the environment variable {name} must be a number, not {text!r}")
    return int(text)
