"""torch's own runtime trains right with the schedules that debubble writes for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cluster import Cluster
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.interchange import export
from debubble.compiler.named import named_schedule
from debubble.compiler.placement import Placement
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile

DEVICES, MICROBATCHES, WIDTH = 4, 8, 6


def stage_module(stage: int) -> torch.nn.Module:
    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1000)
    return tuple(torch.randn(2 * MICROBATCHES, WIDTH, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def train(rank: int, path: str, format: str, owners: tuple[int, ...]) -> dict[int, list[torch.Tensor]]:
    """One step of torch's runtime on this rank: the gradients of its stages."""
    own = [stage for stage, owner in enumerate(owners) if owner == rank]
    modules = {stage: stage_module(stage) for stage in own}
    stages = [PipelineStage(modules[stage], stage, len(owners), torch.device("cpu")) for stage in own]
    schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    for stage in stages:
        stage.stage_index_to_group_rank = dict(enumerate(owners))
    schedule._load_csv(path, format=format)
    inputs, targets = batch()
    arguments = (inputs,) if 0 in own else ()
    schedule.step(*arguments, target=targets if len(owners) - 1 in own else None)
    return {stage: [p.grad for p in module.parameters() if p.grad is not None] for stage, module in modules.items()}


@pytest.mark.parametrize(
    ("place", "name", "format"),
    [
        (placement.linear(DEVICES), "zb-h1", "torch-comms-csv"),
        (placement.v(DEVICES), "gpipe", "torch-comms-csv"),
        (placement.loop(DEVICES), "interleaved", "torch-csv"),
    ],
)
def test_torch_trains_with_what_is_written(
    place: Placement, name: str, format: str, cluster: Cluster, tmp_path: Path
) -> None:
    """The gradients are those of one process."""
    profile = Profile.uniform(stages=place.stages, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, place, MICROBATCHES)
    bound = Certificate(lower_bound=0.0, name="none", proof="solver")
    path = tmp_path / "schedule.csv"
    path.write_text(export(Plan.build(problem, named_schedule(name, problem), bound), format))
    modules = [stage_module(stage) for stage in range(place.stages)]
    inputs, targets = batch()
    torch.nn.functional.mse_loss(torch.nn.Sequential(*modules)(inputs), targets).backward()
    found = {}
    how = {"torch-csv": "compute_only", "torch-comms-csv": "compute_comms"}[format]
    for gradients in cluster(train, str(path), how, place.down):
        found.update(gradients)
    for stage, module in enumerate(modules):
        for expected, gradient in zip(module.parameters(), found[stage], strict=True):
            torch.testing.assert_close(gradient, expected.grad, rtol=1e-10, atol=1e-12)
