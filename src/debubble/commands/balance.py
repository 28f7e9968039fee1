"""`debubble balance`: layers into stages."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from ..compiler.interchange.layer_files import read_layers
from ..compiler.profile import Link
from ..invocation import invocation
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
from .output import print_json, print_text


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
    from ..balancing import balance

    check_writable(output)
    layers = read_layers(file, include_input=include_input)
    if bandwidth is not None:
        layers = replace(layers, comm=Link(comm or 0.0, bandwidth))
        if not any(layer.output_bytes for layer in layers.layers):
            silent = "no layer says its output_bytes, so that the bandwidth plays no part: a transfer takes its latency"
            layers = replace(layers, notes=(*layers.notes, silent))
    elif comm is not None:
        layers = replace(layers, comm=comm)
    with search_progress(time_limit, layers.time_unit) as report:
        found = balance(layers, time_limit=time_limit, report=report, **request)
    if output is not None:
        found.profile.save(output)
    if as_json:
        print_json(found.as_json() | {"profile": output})
        return
    print_text(found)
    if output is not None:
        print_text(f"\nsaved as {output}; use it with: {invocation(found.plan.problem, output)}")
