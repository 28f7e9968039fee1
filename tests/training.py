"""Plans, models and the comparison with plain autograd that the runtime's tests share."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.named import PLACEMENTS, named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.recomputation import Recompute
from debubble.compiler.schedule import Schedule
from debubble.runtime import Pipeline, Workload
from debubble.runtime.reference import Reference, gradients, relative_error

WIDTH = 8


def problem_of(
    devices: int, microbatches: int, *, place: str = "linear", backward: str = "any", recompute: Recompute = "none"
) -> Problem:
    """Equal stages that take 10, 11 and 8."""
    where = placement.named(place, devices=devices)
    profile = Profile.uniform(stages=where.stages, forward=10, backward_input=11, backward_weight=8, comm=1)
    return Problem(profile, where, microbatches, backward=backward, recompute=recompute)


def plan_of(problem: Problem, schedule: Schedule) -> Plan:
    return Plan.build(problem, schedule, Certificate(lower_bound=0.0, name="none", proof="solver"))


def named_plan(name: str, devices: int, microbatches: int, *, place: str | None = None, **options: Any) -> Plan:
    """The plan of a named schedule, on the placement it was drawn for; `options` are those of `problem_of`."""
    problem = problem_of(devices, microbatches, place=place or PLACEMENTS.get(name, "linear"), **options)
    return plan_of(problem, named_schedule(name, problem))


def blocks(dtype: torch.dtype = torch.float64, dropout: float = 0.0, rows: int = 1) -> Workload:
    """A transformer block per stage, on `rows` sequences of three places per micro-batch."""

    def stage(index: int, count: int) -> nn.Module:
        return nn.TransformerEncoderLayer(
            WIDTH, 2, 2 * WIDTH, dropout=dropout, batch_first=True, norm_first=True, dtype=dtype
        )

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (rows * microbatches, 3, WIDTH)
        return torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)

    return Workload(stage, batch, nn.functional.mse_loss)


def build(plan: Plan, workload: Workload, rank: int) -> dict[int, nn.Module]:
    """The stages of one rank."""
    held = plan.problem.placement.copies[rank]
    return {stage: workload.build(stage, plan.problem.stages, seed=0) for stage in held}


def reference_of(plan: Plan, workload: Workload) -> Reference:
    return Reference(workload, plan.problem.stages, plan.problem.microbatches, torch.device("cpu"), seed=0)


def deviation(
    rank: int, plan: Plan, workload: Workload, group: dist.ProcessGroup | None = None, **options: Any
) -> tuple[float, float]:
    """Train one step of the plan as this rank, and by plain autograd: the relative errors of gradients and loss."""
    modules = build(plan, workload, rank)
    batch = workload.data(0, plan.problem.microbatches, seed=0)
    loss = Pipeline(plan, modules, workload.loss, group, seed=0).step(*batch, **options)
    reference = reference_of(plan, workload)
    expected = reference.step(*batch)
    errors = [relative_error(gradients(modules[s]), gradients(reference.modules[s])) for s in modules]
    return max(errors), abs(float(loss) - expected) / abs(expected)
