"""Right gradients, everywhere: every named schedule and searched plans on one, two and four processes.

    python benchmarks/check.py [--save]

Each plan trains one step of transformer blocks in double precision, on gloo processes that are started once. Loss and
gradients are compared with plain autograd in one process. Exits with 1 when any relative error exceeds 1e-10.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch.distributed as dist
from common import Table, arguments, save

import debubble
from debubble.compiler.errors import DebubbleError
from debubble.compiler.named import NAMED, named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.plan import Plan
from debubble.compiler.schedule import Schedule

cluster, training = (import_module(name) for name in ("cluster", "training"))  # the tests', which common made visible

TOLERANCE = 1e-10
MICROBATCHES = 8
ORDERS = 20
"""Random orders of the weight gradients."""

LIMIT = 2.0
"""Seconds that each search may take."""


def trained(rank: int, path: str) -> float:
    """The larger relative error of loss and gradients; fewer than four devices make several pipelines of them."""
    plan = Plan.load(path)
    devices = plan.problem.devices
    group, _ = dist.new_subgroups(devices)
    return max(training.deviation(rank % devices, plan, training.blocks(), group))


def named() -> Iterator[tuple[str, int, Plan]]:
    """Every named schedule, where it is drawn for so few devices."""
    for name, devices in itertools.product(NAMED, (1, 2, 4)):
        try:
            yield name, devices, training.named_plan(name, devices, MICROBATCHES)
        except DebubbleError as error:
            print(f"{name} on {devices}: {error}", file=sys.stderr)


def searched() -> Iterator[tuple[str, int, Plan]]:
    """Searched plans on every placement, with every kind of backward."""
    places, backwards = ("linear", "loop", "v", "bidirectional"), ("any", "split", "fused")
    for place, devices, backward in itertools.product(places, (1, 2, 4), backwards):
        if place != "bidirectional" or devices % 2 == 0:
            problem = training.problem_of(devices, MICROBATCHES, place=place, backward=backward)
            plan = debubble.compile(
                problem.profile,
                microbatches=MICROBATCHES,
                placement=place,
                devices=devices,
                backward=backward,
                time_limit=LIMIT,
            )
            yield f"searched, {place}, {backward}", devices, plan


def shuffled() -> Iterator[tuple[str, int, Plan]]:
    """1F1B with every weight gradient anywhere after its B."""
    problem = training.problem_of(4, MICROBATCHES, backward="split")
    for seed in range(ORDERS):
        chance = random.Random(seed)
        orders = []
        for device, order in enumerate(named_schedule("1f1b", problem).orders):
            early = [step for step in order if isinstance(step, Operation) and step.kind != "W"]
            for microbatch in range(MICROBATCHES):
                first = early.index(Operation("B", device, microbatch)) + 1
                early.insert(chance.randint(first, len(early)), Operation("W", device, microbatch))
            orders.append(early)
        yield f"W in random order {seed}", 4, training.plan_of(problem, Schedule.of(orders))


def main() -> int:
    options = arguments(__doc__ or "", "check").parse_args()
    table = Table("Loss and gradients against one process", ["plan", "devices", "largest relative error", "right"])
    fine = True
    running = cluster.Cluster()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.json"
        for what, devices, plan in itertools.chain(named(), searched(), shuffled()):
            plan.save(path)
            error = max(running(trained, str(path)))
            fine = fine and error < TOLERANCE
            table.row(what, devices, f"{error:.1e}", "yes" if error < TOLERANCE else "NO")
    running.close()
    if options.save:
        save("check", [table])
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
