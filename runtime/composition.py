"""What a stage may be wrapped in: the ways of spreading a model that a pipeline composes with, and those it refuses.

Data parallelism is the pipeline's own (`data_parallel`) or FSDP2's `fully_shard` on each stage. With FSDP2 the
gradients are reduced in every backward, and a split backward defers nothing, since it cannot keep a sharded weight
gathered until W: B is the whole backward.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ..compiler.errors import InputError


def sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was applied to a part of the module."""
    return any(isinstance(part, FSDPModule) for part in module.modules())


def check_composition(stages: Mapping[int, nn.Module], *, copied: bool) -> None:
    """Raise InputError for stages that are wrapped in something which would give wrong gradients or was never tested.

    `copied` says that the pipeline itself sums gradients of these stages with copies elsewhere.
    """
    for stage, module in stages.items():
        for part in module.modules():
            if isinstance(part, DistributedDataParallel | DataParallel):
                raise InputError(
                    f"stage {stage} is wrapped in {type(part).__name__}, which expects one backward for each forward",
                    hint="pass the plain module, and the replicas' process group as data_parallel",
                )
            if isinstance(part, FullyShardedDataParallel):
                raise InputError(
                    f"stage {stage} is wrapped in FullyShardedDataParallel", hint="use fully_shard (FSDP2)"
                )
        spread = any(isinstance(parameter, DTensor) for parameter in module.parameters())
        if spread and not sharded(module):
            raise InputError(f"stage {stage} has distributed parameters that are not fully_shard's")
        if spread and copied:
            raise InputError(
                f"stage {stage} is sharded by fully_shard, which does not compose with data_parallel, tied weights "
                "or a bidirectional plan"
            )
