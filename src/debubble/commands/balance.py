"""`debubble balance`: layers into stages."""

from __future__ import annotations

import statistics
from typing import Any

import click
from msgspec.structs import replace

from ..balance import Balance
from ..compiler.interchange.layer_files import read_layers
from ..compiler.profile import Link
from ..progress import search_progress
from .options import (
    Numbers,
    backward_option,
    cap_option,
    check_writable,
    json_option,
    objective_option,
    placement_option,
    recompute_option,
    search_options,
)
from .output import print_json, print_table, print_text

_LONGEST = 36
"""Of the names of a stage's layers so much is shown."""


@click.command("balance")
@click.argument("file", metavar="LAYERS")
@click.option("--devices", type=int, help="Number of devices.")
@placement_option
@click.option("--chunks", type=int, help="Stages per device in a loop or v (default 2).")
@click.option("-m", "--microbatches", type=int, required=True, help="Number of micro-batches.")
@cap_option
@objective_option
@backward_option
@recompute_option("none")
@click.option("--comm", type=Numbers(), help="Time of one transfer, or with --bandwidth its latency.")
@click.option("--bandwidth", type=Numbers(), help="Bytes that a link moves per time unit.")
@click.option("--input/--no-input", "include_input", default=True, help="Whether PipeDream's Input node takes time.")
@search_options
@click.option("-o", "--output", metavar="PROFILE.json", help="Save the profile of the stages.")
@json_option
def command(
    file: str,
    comm: float | None,
    bandwidth: float | None,
    include_input: bool,
    time_limit: float,
    output: str | None,
    as_json: bool,
    **request: Any,
) -> None:
    """Split layers into stages so that the schedule found takes the least time.

    LAYERS is a table of layers (JSON or CSV), a profile of one stage per layer (debubble profile --stages LAYERS), or
    PipeDream's profile graph. Layers stay in their order, and none is left out.
    """
    from ..balance import balance

    check_writable(output)
    layers = read_layers(file, include_input=include_input)
    if bandwidth is not None:
        layers = replace(layers, comm=Link(comm or 0.0, bandwidth))
    elif comm is not None:
        layers = replace(layers, comm=comm)
    with search_progress(time_limit, layers.time_unit) as report:
        found = balance(layers, time_limit=time_limit, report=report, **request)
    if output is not None:
        found.profile.save(output)
    if as_json:
        print_json(found.as_json() | {"profile": output})
    else:
        _print(found, output)


def _print(found: Balance, output: str | None) -> None:
    stages = found.profile.stages
    works = [stage.forward + stage.fused for stage in stages]
    mean = statistics.fmean(works)
    rows = []
    for number, (stage, names, work) in enumerate(zip(stages, found.modules, works, strict=True)):
        share = f"{work / mean:.0%}" if mean else "-"
        words = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        held = f"{stage.memory.forward:g}", f"{stage.static_memory:g}"
        rows.append([str(number), str(len(names)), f"{work:.4g}", share, *held, words[:_LONGEST]])
    print_table(["stage", "layers", "work", "of mean", "memory", "static", "from to"], rows)
    print_text(f"\n{found.plan}")
    saved = 1 - found.plan.value / found.first if found.first else 0.0
    print_text(f"  splits       {found.tried} searched; the best takes {saved:.2%} less than was found for the first")
    if found.layout is not None:
        print_text(f"  layout       {found.layout}")
    print_text("  modules      --json lists those of each stage, as torchtitan's module_fqns_per_model_part")
    for note in found.layers.notes:
        print_text(f"  note         {note}")
    if output is not None:
        print_text(f"\nsaved as {output}; use it with: debubble compile {output}")
