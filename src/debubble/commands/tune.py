"""`debubble tune`: the front of time against memory over placements, chunks, micro-batch counts and caps."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from ..candidates import Model
from ..compiler import files
from ..compiler.errors import InputError
from ..compiler.interchange.layer_files import read_model
from ..compiler.pictures.canvas import FORMATS
from ..compiler.placement import NAMES
from ..compiler.profile import Profile
from ..front import Point
from ..invocation import invocation
from ..progress import tuning_progress
from .options import (
    Listed,
    Numbers,
    Recomputed,
    backend_option,
    backward_option,
    cap_option,
    check_writable,
    costs_options,
    json_option,
    objective_option,
    read_costs,
    seed_option,
    time_limit_option,
)
from .output import print_json, print_text


@click.command("tune")
@costs_options
@click.option(
    "-m",
    "--microbatches",
    type=Listed(click.INT),
    required=True,
    help="Into how many micro-batches the global batch is cut: first as in the profile, then others to try.",
)
@click.option(
    "--second", type=(str, int), metavar="PROFILE.json M", help="A profile of M micro-batches: costs are on a line."
)
@click.option(
    "--placement",
    "placements",
    type=Listed(click.Choice(NAMES)),
    help="Placements to try (default linear, loop, v, and bidirectional where the profile has static memory).",
)
@click.option("--chunks", type=Listed(click.INT), default="2", show_default=True, help="Chunks of a loop or v to try.")
@click.option(
    "--caps",
    type=Numbers(count=0, name="x,y,..."),
    default="0.5,0.75,1,1.25,1.5,2",
    show_default=True,
    help="Caps to try, as multiples of what 1F1B holds beside static memory.",
)
@cap_option
@click.option(
    "--recompute",
    type=Listed(Recomputed()),
    metavar="none|all|N,...",
    help="Recomputations to try (default none, and all where the profile tells the input of every stage).",
)
@objective_option
@backward_option
@backend_option
@time_limit_option(240.0)
@seed_option
@click.option("--jobs", type=int, default=lambda: os.cpu_count() or 1, help="Processes to search in (default: cores).")
@click.option("--cache", metavar="DIR", help="Keep plans here, and go on from those that are here.")
@click.option("-o", "--output", metavar="FRONT.svg|png", help="Draw the front (needs matplotlib).")
@json_option
def command(
    profiles: tuple[str, ...],
    devices: int | None,
    forward: float | None,
    backward_input: float | None,
    backward_weight: float | None,
    comm: float | None,
    memory: tuple[float, float, float] | None,
    second: tuple[str, int] | None,
    time_limit: float,
    output: str | None,
    as_json: bool,
    **request: Any,
) -> int:
    """Look for the plans that no other beats in both time and memory.

    The global batch and the work of each device are held fixed: with v chunks each stage has 1/v of its costs, with
    twice the micro-batches each costs half. Layers (see balance), or a profile of more stages than --devices, are
    gathered anew into the stages of each placement. Ctrl-C ends the search and prints what it found.
    """
    from ..tuning import tune

    model = read_costs(
        profiles=profiles,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        comm=comm,
        memory=memory,
        stages=lambda: _required(devices),
        load=read_model,
    )
    format = None if output is None else _format(output)
    check_writable(output)
    with tuning_progress(time_limit) as report:
        front = tune(model, devices=devices, second=second, time_limit=time_limit, report=report, **request)
    best = front.recommended
    figure = output if best is not None else None
    if figure is not None and format is not None:
        files.write(figure, front.draw(format))
    if as_json:
        print_json(front.as_json() | {"figure": figure, "warnings": front.warnings()})
    else:
        print_text(front)
        if figure is not None:
            print_text(f"drawn as {figure}")
        if best is not None:
            print_text(_way(best, model, request["microbatches"][0], profiles))
    return 0 if best is not None else 1


def _way(best: Point, model: Model, microbatches: int, profiles: tuple[str, ...]) -> str:
    """How to come by the plan."""
    if best.path is not None:
        return (
            f"saved as {best.path}, beside the others (--json names them); "
            f"look at it with: debubble show {shlex.quote(best.path)}"
        )
    problem = best.plan.problem
    words = None
    if not profiles:
        words = invocation(problem, None)
    elif isinstance(model, Profile) and (len(model.stages), microbatches) == (problem.devices, problem.microbatches):
        words = invocation(problem, profiles[0])
    return "keep it with --cache DIR" if words is None else f"search for it with: {words} -o plan.json"


def _required(devices: int | None) -> int:
    if devices is None:
        raise InputError("the number of devices is missing", hint="give a profile, or --devices")
    return devices


def _format(output: str) -> str:
    format = os.path.splitext(output)[1].removeprefix(".").lower()
    if format not in FORMATS:
        raise InputError(f"a front is drawn as {' or '.join(FORMATS)}, which {output} does not say", code="bad-format")
    return format
