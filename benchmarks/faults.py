"""Faults at random: ranks that are killed at any moment, and ranks that are slow at any moment.

    python benchmarks/faults.py [--kills 20] [--steps 1000] [--save]

First a rank of a running job is killed with SIGKILL, again and again: every time the job must end with a message that
names this rank, within 15 s. Then the same steps are taken with and without random delays of 0 to 20 ms before each
forward: their losses must be the same. Exits with 1 when anything is otherwise.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from common import Table, arguments, save, uniform
from torch import nn

from debubble.compiler.certificate import Certificate
from debubble.compiler.errors import RunError
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.runtime import Workload, run

DEVICES, MICROBATCHES, WIDTH = 4, 8, 8
LIMIT = 15.0
"""Seconds from the kill to the end of the job."""


class Slow(nn.Module):
    """A linear layer that takes `seconds()` more."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self._times, self._chance = (least, most), random.Random()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self._chance.uniform(*self._times))
        return self.linear(x)


def batch(step: int, microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(microbatches, WIDTH), torch.randn(microbatches, WIDTH)


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)  # type: ignore[arg-type]


def die() -> None:
    """Leave the time, and end this process as hard as can be."""
    Path(os.environ["DEATH"]).write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def workload() -> Workload:
    """Forwards take up to LATE seconds more; the stage VICTIM kills its process some time after its first forward."""
    late = float(os.environ.get("LATE", "0"))
    victim = int(os.environ.get("VICTIM", "-1"))

    def stage(index: int, count: int) -> nn.Module:
        if index == victim:
            threading.Timer(float(os.environ["AFTER"]), die).start()
        return Slow(0.0, late)

    return Workload(stage, batch, nn.functional.mse_loss, sgd)


def kill(chance: random.Random, plan: Plan, table: Table) -> bool:
    """One job with a rank that is killed between 3 and 6 s after its model was built."""
    victim = chance.randrange(DEVICES)
    with tempfile.NamedTemporaryFile() as death:
        os.environ.update(LATE="0.01", VICTIM=str(victim), AFTER=str(chance.uniform(3, 6)), DEATH=death.name)
        try:
            run(plan, f"{__file__}:workload", steps=100_000)
            message = "the job did not end"
        except RunError as error:
            message = str(error)
        seconds = time.monotonic() - float(death.read() or "nan")
    fine = message.startswith(f"rank {victim}, ") and message.endswith("killed by SIGKILL") and seconds < LIMIT
    table.row("yes" if fine else "NO", f"{seconds:.1f}", message)
    return fine


def delays(plan: Plan, steps: int, table: Table) -> bool:
    """The same steps with and without delays."""
    os.environ.update(VICTIM="-1")
    losses = []
    for late in ("0", "0.02"):
        os.environ.update(LATE=late)
        result = run(plan, f"{__file__}:workload", steps=steps)
        assert result is not None
        losses.append(result.losses)
    same = losses[0] == losses[1]
    table.row("yes" if same else "NO", steps, *(f"{found[-1]:.9g}" for found in losses))
    return same


def main() -> int:
    parser = arguments(__doc__ or "", "faults")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    problem = uniform("linear", DEVICES, MICROBATCHES, (10, 11, 8))
    schedule = named_schedule("zb-h1", problem)
    plan = Plan.build(problem, schedule, Certificate(lower_bound=0.0, name="none", proof="solver"))
    chance = random.Random(options.seed)
    killed = Table("A rank killed at random", ["right message within 15 s", "seconds", "message"])
    fine = [kill(chance, plan, killed) for _ in range(options.kills)]
    delayed = Table("Forwards delayed by 0 to 20 ms", ["same losses", "steps", "last without", "last with"])
    fine.append(delays(plan, options.steps, delayed))
    if options.save:
        save("faults", [killed, delayed])
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
