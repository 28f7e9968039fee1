"""One GPU: what a split backward costs there, and whether predictions of memory and time hold.

    python benchmarks/gpu.py

Takes less than 8 minutes on one NVIDIA GPU; without one it runs at a toy size, to try the script. Two parts:

1. (B + W) / BW, the host's time in W, and the memory held after F and after B, of 1 to 16 transformer blocks in bf16;
2. four stages on the one device, measured with `measure`, then run as a plan: predicted against measured step,
   predicted against allocated peak, for a fused and for split orders.
"""

from __future__ import annotations

import statistics
import time

import torch
from common import Table
from split import COLUMNS, Block
from split import measure as measure_split
from torch import nn

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.schedule import Schedule
from debubble.runtime import Pipeline, Workload, measure

STAGES, MICROBATCHES, STEPS = 4, 8, 10
SIZES = {"cuda": (2048, 4, 1024), "cpu": (16, 1, 8)}
"""Width, rows of a micro-batch and length."""

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16


def workload() -> Workload:
    """Two transformer blocks per stage."""
    width, rows, length = SIZES[DEVICE.type]

    def stage(index: int, count: int) -> nn.Module:
        return nn.Sequential(Block(width), Block(width)).to(DEVICE, DTYPE)

    def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = (torch.randn(rows * microbatches, length, width, device=DEVICE, dtype=DTYPE) for _ in range(2))
        return x, y

    return Workload(stage, batch, nn.functional.mse_loss)


def late_weights(problem: Problem) -> Schedule:
    """The fused GPipe order with every W put off to the end: the most memory."""
    order = [step for step in named_schedule("gpipe", problem).orders[0] if isinstance(step, Operation)]
    rest = [step for step in order if step.kind == "W"]
    return Schedule.of([[step for step in order if step.kind != "W"] + rest], "gpipe, W last")


def allocated() -> float:
    """MiB at the most since the last call."""
    if DEVICE.type != "cuda":
        return float("nan")
    peak = torch.cuda.max_memory_allocated(DEVICE) / 2**20
    torch.cuda.reset_peak_memory_stats(DEVICE)
    return peak


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)


def run_plan(plan: Plan) -> None:
    """Print one line: predicted and measured step, predicted and allocated peak."""
    work = workload()
    modules = {index: work.build(index, STAGES, seed=0) for index in range(STAGES)}
    parameters = [p for module in modules.values() for p in module.parameters()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    pipeline = Pipeline(plan, modules, work.loss)
    batch = work.data(0, MICROBATCHES, seed=0)
    held_by_batch = sum(part.nbytes for part in batch) / 2**20
    pipeline.step(*batch)
    allocated()
    seconds = []
    for _ in range(STEPS):
        synchronize()
        start = time.perf_counter()
        pipeline.step(*batch)
        synchronize()
        seconds.append(time.perf_counter() - start)
    peak = allocated() - held_by_batch
    measured, predicted = 1e3 * statistics.median(seconds), plan.timeline.makespan
    expected = plan.timeline.peak_memory[0]
    print(
        f"{plan.schedule.method:16} step {measured:8.2f} ms, predicted {predicted:8.2f} ({measured / predicted:.3f});  "
        f"peak {peak:8.1f} MiB, predicted {expected:8.1f} ({peak / expected:.3f})"
    )


def main() -> None:
    torch.set_num_threads(1)
    name = torch.cuda.get_device_name(DEVICE) if DEVICE.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}")
    width, rows, length = SIZES[DEVICE.type]
    table = Table("A split backward", COLUMNS)
    for blocks in (1, 2, 4, 8, 16):
        measure_split(blocks, (rows, length, width), DEVICE, DTYPE, 15, table)
    measured = measure(f"{__file__}:workload", stages=STAGES, microbatches=MICROBATCHES, device=DEVICE.type)
    for warning in measured.warnings:
        print(f"warning: {warning}")
    where = placement.explicit((0,) * STAGES)
    for backward, rule in (("fused", None), ("split", None), ("split", late_weights)):
        problem = Problem(measured.profile, where, MICROBATCHES, backward=backward)
        schedule = named_schedule("gpipe", problem) if rule is None else rule(problem)
        if rule is None:
            schedule = Schedule(schedule.orders, f"gpipe, {backward}")
        run_plan(Plan.build(problem, schedule, Certificate(lower_bound=0.0, name="none", proof="solver")))


if __name__ == "__main__":
    main()
