"""The cost of the runtime: CPU time of a step beside torch.distributed.pipelining's, on the same model and order.

    python benchmarks/runtime.py [--devices 4] [--microbatches 8] [--width 16] [--steps 30] [--save]

Every way executes the same tiny model on the same gloo ranks, one after another in one run. What is compared is CPU
time of all ranks together, the median over the steps, so that waiting costs nothing and a busy machine disturbs less:
of the threads that execute instructions, and of the whole processes, half of which gloo's threads take. torch's ways
are its hand-written 1F1B loop and its CSV runtime, which is given the plan's own order.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import Table, arguments, save, uniform
from torch import multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from debubble.compiler.certificate import Certificate
from debubble.compiler.interchange.export import export
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.runtime import Pipeline

Step = Callable[[torch.Tensor, torch.Tensor], Any]


class Layers(nn.Module):
    """Two linear layers in two dimensions: torch's split backward fails on outputs that are views."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def plan_of(name: str, devices: int, microbatches: int) -> Plan:
    problem = uniform("linear", devices, microbatches, (10, 11, 8), backward="split" if name != "1f1b" else "any")
    return Plan.build(problem, named_schedule(name, problem), Certificate(lower_bound=0.0, name="none", proof="solver"))


def stage(rank: int, width: int) -> nn.Module:
    torch.manual_seed(rank)
    return Layers(width)


def ours(plan: Plan, rank: int, width: int) -> Step:
    return Pipeline(plan, {rank: stage(rank, width)}, nn.functional.mse_loss).step


def theirs(schedule: Any, rank: int, devices: int) -> Step:
    """torch's `step` takes inputs on the first rank, targets on the last."""

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        if rank == 0:
            return schedule.step(x)
        return schedule.step(target=y) if rank == devices - 1 else schedule.step()

    return step


def torch_stage(rank: int, devices: int, width: int) -> PipelineStage:
    return PipelineStage(stage(rank, width), rank, devices, torch.device("cpu"))


def torch_csv(plan: Plan, rank: int, width: int, directory: str) -> Step:
    devices, microbatches = plan.problem.devices, plan.problem.microbatches
    schedule = _PipelineScheduleRuntime(
        [torch_stage(rank, devices, width)], microbatches, loss_fn=nn.functional.mse_loss
    )
    path = Path(directory) / f"{plan.schedule.method}-{rank}.csv"
    path.write_text(export(plan, "torch-csv"))
    schedule._load_csv(str(path), format="compute_only")
    return theirs(schedule, rank, devices)


def work(rank: int, options: argparse.Namespace, directory: str) -> None:
    """One rank of the benchmark."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=options.devices)
    plans = {name: plan_of(name, options.devices, options.microbatches) for name in ("1f1b", "zb-h1")}
    loop = Schedule1F1B(
        torch_stage(rank, options.devices, options.width), options.microbatches, loss_fn=nn.functional.mse_loss
    )
    ways: dict[str, Step] = {
        "1f1b, debubble": ours(plans["1f1b"], rank, options.width),
        "1f1b, torch's loop": theirs(loop, rank, options.devices),
        "1f1b, torch's CSV runtime": torch_csv(plans["1f1b"], rank, options.width, directory),
        "zb-h1, debubble": ours(plans["zb-h1"], rank, options.width),
        "zb-h1, torch's CSV runtime": torch_csv(plans["zb-h1"], rank, options.width, directory),
    }
    x, y = (torch.randn(2 * options.microbatches, options.width) for _ in range(2))
    times: dict[str, list[torch.Tensor]] = {way: [] for way in ways}
    for number in range(options.steps + 3):
        for way, step in ways.items():
            dist.barrier()
            start = (time.thread_time(), time.process_time())
            step(x, y)
            spent = torch.tensor([time.thread_time() - start[0], time.process_time() - start[1]])
            dist.all_reduce(spent)
            if number >= 3:
                times[way].append(spent)
    if rank == 0:
        report({way: torch.stack(found).median(0).values.tolist() for way, found in times.items()}, options.save)
    dist.barrier()
    dist.destroy_process_group()


def report(median: dict[str, list[float]], save_it: bool) -> None:
    """Milliseconds of a step by way, and the ratios of ours to torch's."""
    spent = Table(
        "Milliseconds of CPU time per step, over all ranks", ["order and runtime", "executing threads", "processes"]
    )
    for way, times in median.items():
        spent.row(way, *(f"{1e3 * time:.2f}" for time in times))
    ratios = Table("debubble's share", ["order", "of", "executing threads", "processes"])
    for name, who in (("1f1b", "torch's loop"), ("1f1b", "torch's CSV runtime"), ("zb-h1", "torch's CSV runtime")):
        pairs = zip(median[f"{name}, debubble"], median[f"{name}, {who}"], strict=True)
        ratios.row(name, who, *(f"{a / b:.2f}" for a, b in pairs))
    if save_it:
        save("runtime", [spent, ratios])


def main() -> None:
    parser = arguments(__doc__ or "", "runtime")
    for name, default in (("devices", 4), ("microbatches", 8), ("width", 16), ("steps", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    with tempfile.TemporaryDirectory() as directory:
        options = parser.parse_args()
        multiprocessing.spawn(work, (options, directory), nprocs=options.devices)


if __name__ == "__main__":
    main()
