"""`debubble run`: execute a plan on real processes."""

from __future__ import annotations

import os
import sys

import click

from ..compiler import files
from ..compiler.plan import Plan
from ..runtime import RunResult, run
from .options import Numbers, check_writable, json_option, require_torch
from .output import print_json, print_table, print_text


@click.command("run")
@click.argument("plan", metavar="PLAN.json")
@click.option("--model", metavar="FILE.py:FUNCTION", help="Returns a debubble.runtime.Workload.")
@click.option("--steps", type=int, default=1, show_default=True, help="How many global batches to train on.")
@click.option("--check", is_flag=True, help="Compare loss and gradients with a single-process run.")
@click.option("--emulate", is_flag=True, help="Wait for as long as the profile says instead of computing; no model.")
@click.option("--trace", metavar="FILE", help="Write what happened in the last step, for ui.perfetto.dev.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the weights and the data.")
@click.option(
    "--timeout", type=Numbers(positive=True), default=300.0, show_default=True, help="Seconds without progress."
)
@json_option
def command(
    plan: str,
    model: str | None,
    steps: int,
    check: bool,
    emulate: bool,
    trace: str | None,
    seed: int,
    timeout: float,
    as_json: bool,
) -> int:
    """Run a plan: one process per device, on this machine or as torchrun and SLURM started them."""
    require_torch("running")
    check_writable(trace)
    loaded = Plan.load(plan)
    result = run(
        loaded,
        model,
        steps=steps,
        check=check,
        seed=seed,
        timeout=timeout,
        emulate=emulate,
        trace=trace is not None,
    )
    if result is None:  # a rank other than 0
        return 0
    if not result.ok:
        sys.stderr.write("error: losses or gradients differ from those of a single-process run\n")
    if trace is not None and result.trace is not None:
        files.write(trace, result.trace.as_json(loaded))
    if as_json:
        print_json(result.as_json())
    else:
        _print(loaded, result)
    return 0 if result.ok else 1


def _print(plan: Plan, result: RunResult) -> None:
    losses = [f"{loss:.6f}" for loss in result.losses] or ["-"] * len(result.step_seconds)  # an emulation has none
    steps = zip(losses, result.step_seconds, strict=True)
    print_table(["step", "loss", "seconds"], [[str(i), loss, f"{s:.3f}"] for i, (loss, s) in enumerate(steps)])
    print_text("")
    if result.gradient_error is not None:
        verdict = "agree" if result.ok else "DIFFER"
        error = f"largest relative error of a gradient {result.gradient_error:.1e}"
        print_text(f"check        losses and gradients {verdict} with a single-process run; {error}")
    unit = result.unit_seconds
    step = f"{result.predicted_step:g} of its time units" if unit is None else f"{result.predicted_step * unit:.3f} s"
    print_text(f"predicted    {step} a step, by the profile")
    cores = os.cpu_count() or 1
    if result.losses and cores < plan.problem.devices:
        print_text(f"note         {plan.problem.devices} processes share {cores} cores: steps take longer than planned")
    if result.losses:  # an emulation holds nothing
        peaks = " ".join(f"{peak / 2**20:.1f}" for peak in result.peak_memory)
        print_text(f"peak memory  {peaks} MiB by device, {result.counted}")
    if result.trace is not None:
        print_text("")
        print_text(result.trace.summary(plan))
