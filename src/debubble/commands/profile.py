"""`debubble profile`: measure what the stages of a model cost on this machine."""

from __future__ import annotations

import click
import msgspec

from ..summary import amount
from .options import check_writable, json_option, require_torch
from .output import print_json, print_table, print_text


@click.command("profile")
@click.option("--model", metavar="FILE.py:FUNCTION", required=True, help="Returns a debubble.runtime.Workload.")
@click.option("--stages", type=int, required=True, help="How many stages the model is cut into.")
@click.option("-m", "--microbatches", type=int, required=True, help="How many micro-batches a batch is cut into.")
@click.option("--repeat", type=int, default=10, show_default=True, help="How many times each operation is timed.")
@click.option("--device", help="cpu, cuda or cuda:N (default: cuda where there is one).")
@click.option("-o", "--output", metavar="PROFILE.json", required=True, help="Where to write the profile.")
@json_option
def command(
    model: str, stages: int, microbatches: int, repeat: int, device: str | None, output: str, as_json: bool
) -> None:
    """Measure F, B and W, memory and the link, stage by stage, and write a profile."""
    require_torch("profiling")
    check_writable(output)
    from ..runtime import measure

    found = measure(model, stages=stages, microbatches=microbatches, repeat=repeat, device=device)
    found.profile.save(output)
    if as_json:
        spread = [msgspec.to_builtins(stage.spread) for stage in found.profile.stages]
        more = {"machine": found.profile.machine, "spread": spread, "warnings": found.warnings}
        print_json({"profile": output, "stages": stages, **more})
        return
    columns = ["stage", "F", "B", "W", "BW", "spread", "memory F", "B", "W", "static"]
    rows = []
    for index, stage in enumerate(found.profile.stages):
        times = (stage.forward, stage.backward_input, stage.backward_weight, stage.fused)
        memory = (stage.memory.forward, stage.memory.backward_input, stage.memory.backward_weight)
        numbers = [f"{time:.3f}" for time in times] + [f"{max(msgspec.to_builtins(stage.spread).values()):.0%}"]
        rows.append([str(index), *numbers, *(f"{change:+.2f}" for change in memory), amount(stage.static_memory)])
    print_table(columns, rows)
    print_text(f"\ntimes in {found.profile.time_unit}, memory in {found.profile.memory_unit}; {found.profile.machine}")
    for warning in found.warnings:
        print_text(f"warning: {warning}")
    print_text(f"saved as {output}; use it with: debubble compile {output} --microbatches {microbatches}")
