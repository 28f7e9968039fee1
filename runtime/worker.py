"""One process of a run: sets up torch.distributed, trains, and compares with the reference where asked.

Started as `python -m debubble.runtime.worker DIRECTORY RANK` by the launcher, which leaves the job in the directory and
finds there what came out.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from ..compiler.errors import DebubbleError, InputError
from ..compiler.plan import Plan
from .emulation import Clock, EmulatedStage, emulated_unit, unit_seconds
from .group import process_group
from .job import TOLERANCES, Failure, Job, RunResult
from .memory import HeldMemory
from .pipeline import Pipeline
from .processes import end_with_the_parent
from .progress import Progress
from .ranks import Rank
from .reference import Reference, gradients, relative_error
from .trace import Trace
from .transport import TransferError
from .workload import Workload, load_workload

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that a wait lasts beyond the job's timeout: the launcher, which knows who is stuck, should speak first."""


def train(job: Job, rank: Rank, progress: Progress | None = None) -> RunResult | None:
    """Run a job as one of its ranks; the result is rank 0's. Raises DebubbleError."""
    plan = Plan.load(job.plan)
    if rank.world != plan.problem.devices:
        raise InputError(f"the plan is for {plan.problem.devices} devices, but there are {rank.world} ranks")
    workload = None if job.model is None else load_workload(job.model)
    with process_group(rank, timedelta(seconds=job.timeout + PATIENCE)) as device:
        if workload is None:
            return _emulate(job, plan, rank, progress)
        return _train(job, plan, workload, rank, device, progress)


def _train(
    job: Job,
    plan: Plan,
    workload: Workload,
    rank: Rank,
    device: torch.device,
    progress: Progress | None,
) -> RunResult | None:
    problem = plan.problem
    count, m = problem.stages, problem.microbatches
    modules = {s: workload.build(s, count, seed=job.seed).to(device) for s in problem.placement.copies[rank.rank]}
    parameters = list({id(p): p for module in modules.values() for p in module.parameters()}.values())
    optimizer = workload.optimizer(parameters) if workload.optimizer and parameters else None
    timeout = job.timeout if progress is None else None  # else the launcher watches
    pipeline = Pipeline(plan, modules, workload.loss, seed=job.seed, timeout=timeout, progress=progress)
    reference = Reference(workload, count, m, device, seed=job.seed) if job.check and rank.rank == 0 else None
    memory = HeldMemory(modules.values()) if device.type == "cpu" else None
    losses, seconds = [], []
    error, ok = 0.0, True
    for step in range(job.steps):
        inputs, targets = (_moved(part, device) for part in workload.data(step, m, seed=job.seed))
        for parameter in parameters:
            parameter.grad = None
        if step == 0:
            pipeline.prepare(inputs, targets)
        pipeline.count_memory(memory if step == 0 else None)  # it costs time, and the first step is slow anyway
        pipeline.events = [] if job.trace and step == job.steps - 1 else None
        start = time.perf_counter()
        losses.append(float(pipeline.step(inputs, targets, update=optimizer.step if optimizer else None)))
        seconds.append(time.perf_counter() - start)
        if job.check:
            expected = reference.step(inputs, targets) if reference is not None else 0.0
            found = _gradient_error(plan, modules, reference, rank.rank)
            if reference is not None:
                error = max(error, found)
                tolerance = _tolerance(reference.modules)
                ok = ok and error <= tolerance and abs(losses[-1] - expected) <= tolerance * max(abs(expected), 1e-30)
                reference.update()
    peak = memory.peak if memory is not None else torch.cuda.max_memory_allocated(device)
    peaks = _gathered(peak, problem.devices)
    trace = _trace(plan, pipeline, unit_seconds(plan))
    if rank.rank != 0:
        return None
    return RunResult(
        ok=ok,
        losses=losses,
        step_seconds=seconds,
        gradient_error=error if job.check else None,
        predicted_step=plan.timeline.makespan,
        peak_memory=peaks,
        counted="beside weights" if memory is not None else "with weights",
        unit_seconds=unit_seconds(plan),
        trace=trace,
    )


def _emulate(job: Job, plan: Plan, rank: Rank, progress: Progress | None) -> RunResult | None:
    """Run with timed waits in place of compute."""
    unit = emulated_unit(plan)
    clock = Clock(time.monotonic())
    stages = {s: EmulatedStage(s, plan, rank.rank, unit, clock) for s in plan.problem.placement.copies[rank.rank]}
    pipeline = Pipeline(plan, stages, lambda output, target: output, progress=progress)
    nothing = torch.zeros(plan.problem.microbatches)
    pipeline.prepare(nothing, nothing)
    seconds = []
    for step in range(job.steps):
        pipeline.events = [] if job.trace and step == job.steps - 1 else None
        begin = torch.tensor(time.monotonic(), dtype=torch.float64)
        dist.all_reduce(begin, dist.ReduceOp.MAX)
        clock.start(float(begin))
        pipeline.step(nothing, nothing)
        seconds.append(time.monotonic() - float(begin))
    trace = _trace(plan, pipeline, unit)
    if rank.rank != 0:
        return None
    return RunResult(
        ok=True,
        losses=[],
        step_seconds=seconds,
        gradient_error=None,
        predicted_step=plan.timeline.makespan,
        peak_memory=[0] * plan.problem.devices,
        unit_seconds=unit,
        trace=trace,
    )


def _trace(plan: Plan, pipeline: Pipeline, unit: float | None) -> Trace | None:
    """What all ranks recorded, where they did."""
    if pipeline.events is None:
        return None
    return Trace.of(plan, _gathered(pipeline.events, plan.problem.devices), unit)


def _gathered(own: T, ranks: int) -> list[T]:
    """What every rank has, on every rank."""
    found: list[T] = [own] * ranks
    dist.all_gather_object(found, own)
    return found


def _gradient_error(plan: Plan, modules: dict[int, nn.Module], reference: Reference | None, rank: int) -> float:
    """Bring every gradient to rank 0, one at a time, and compare it there."""
    worst = 0.0
    for device, stages in enumerate(plan.problem.placement.copies):
        for stage in stages:
            if reference is not None:
                expected = gradients(reference.modules[stage])
                found = gradients(modules[stage]) if device == 0 else [torch.empty_like(g) for g in expected]
                if device != 0:
                    for gradient in found:
                        dist.recv(gradient, device)
                worst = max(worst, relative_error(found, expected))
            elif device == rank:
                for gradient in gradients(modules[stage]):
                    dist.send(gradient.contiguous(), 0)
    return worst


def _tolerance(modules: list[nn.Module]) -> float:
    dtypes = {str(p.dtype).removeprefix("torch.") for module in modules for p in module.parameters()}
    return max((TOLERANCES.get(dtype, 0.0) for dtype in dtypes), default=TOLERANCES["float32"])


def _moved(value: object, device: torch.device) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return type(value)(_moved(item, device) for item in value) if isinstance(value, tuple | list) else value


def main(directory: str, rank: int) -> int:
    """Run the job in a directory as one of its local processes, and leave there what came out of it."""
    end_with_the_parent()
    place = Path(directory)
    job = msgspec.json.decode((place / "job.json").read_bytes(), type=Job)
    with open(place / f"progress-{rank}", "r+b") as file:
        progress = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    try:
        world = len(list(place.glob("progress-*")))
        result = train(job, Rank(rank, world, rank, world, f"file://{place}/store"), progress)
    except Exception as error:
        message = str(error) if isinstance(error, DebubbleError) else f"rank {rank}: {type(error).__name__}: {error}"
        consequence = isinstance(error, TransferError) or isinstance(error.__cause__, TransferError)
        failure = Failure(message=message, bad_input=isinstance(error, InputError), consequence=consequence)
        (place / f"failure-{rank}.json").write_bytes(msgspec.json.encode(failure))
        return 1
    if result is not None:
        (place / "result.json").write_bytes(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1], int(sys.argv[2])))
