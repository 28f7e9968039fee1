"""Training that goes on after a failure, under torchrun's restarts, from checkpoints of torch.distributed.checkpoint:

    debubble compile --devices 2 --forward 1 --backward-input 1 --backward-weight 1 -m 4 -o plan.json
    torchrun --nproc-per-node 2 --max-restarts 3 examples/resume.py plan.json checkpoints/ 20

Every rank saves its own stages after each step. When a rank fails, torchrun ends all of them and starts them again;
they load the last whole checkpoint, and the losses go on as if nothing had happened, because data and random numbers
depend on the step alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from transformer import workload

from debubble.compiler.plan import Plan
from debubble.runtime import Pipeline

SEED = 0
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
"""One entry for each parameter and each of its states: no two ranks have one of the same name."""


def store() -> dist.Store:
    """torchrun's store. It outlives a restart, so the addresses of each attempt get a prefix of their own."""
    shared = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    return dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", shared)


def newest(directory: Path) -> int:
    """The number of steps in the last whole checkpoint; writing ends with the file `.metadata`."""
    found = [int(path.parent.name) for path in directory.glob("*/.metadata")]
    return max(found, default=0)


def save(directory: Path, steps: int, stages: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save all stages of all ranks, and drop the checkpoint before the last one."""
    model, state = get_state_dict(stages, optimizer, options=OPTIONS)
    checkpoint.save({"model": model, "optimizer": state}, checkpoint_id=directory / str(steps))
    if dist.get_rank() == 0:
        shutil.rmtree(directory / str(steps - 2), ignore_errors=True)


def load(directory: Path, steps: int, stages: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load this rank's stages."""
    model, state = get_state_dict(stages, optimizer, options=OPTIONS)
    checkpoint.load({"model": model, "optimizer": state}, checkpoint_id=directory / str(steps))
    set_state_dict(stages, optimizer, model_state_dict=model, optim_state_dict=state, options=OPTIONS)


def main(plan_file: str, directory: Path, steps: int) -> None:
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store(), rank=rank, world_size=world)
    plan, work = Plan.load(plan_file), workload()
    m, count = plan.problem.microbatches, plan.problem.stages
    modules = {stage: work.build(stage, count, seed=SEED) for stage in plan.problem.placement.copies[rank]}
    stages = nn.ModuleDict({f"stage{number}": module for number, module in modules.items()})
    assert work.optimizer is not None
    optimizer = work.optimizer(stages.parameters())
    done = newest(directory)
    if done:
        load(directory, done, stages, optimizer)
    pipeline = Pipeline(plan, modules, work.loss, seed=SEED)
    pipeline.steps = done
    for step in range(done, steps):
        optimizer.zero_grad()
        loss = pipeline.step(*work.data(step, m, seed=SEED), update=optimizer.step)
        if rank == 0:
            print(f"step {step} loss {float(loss):.9f}", flush=True)
        if os.environ.get("FAIL_AT") == str(step) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise SystemExit(f"rank {rank} fails after step {step}, as it was asked to")
        save(directory, step + 1, stages, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
