"""`debubble compile`: search for a schedule, or take a named one, and make it a plan."""

from __future__ import annotations

import time
from typing import Any

import click

from ..compiler.errors import InputError
from ..compiler.named import NAMED
from ..progress import search_progress
from ..summary import against, in_flight, per_device, reference
from .options import check_writable, json_option, problem_options, read_problem, search_options
from .output import print_json, print_table, print_text


@click.command("compile")
@problem_options
@click.option(
    "--schedule",
    default="auto",
    show_default=True,
    metavar="auto|NAME",
    help=f"Search, or take a named schedule: {', '.join(NAMED)}.",
)
@click.option("--group-size", type=int, help="Micro-batches that pass a chunk together (interleaved; default devices).")
@search_options
@click.option("-o", "--output", metavar="PLAN.json", help="Save the plan.")
@json_option
def command(
    schedule: str,
    group_size: int | None,
    backend: str,
    time_limit: float,
    seed: int,
    output: str | None,
    as_json: bool,
    **request: Any,
) -> None:
    """Compile a schedule for a cost profile under a memory cap.

    The costs come from PROFILE.json, or, equal for all stages, from --forward, --backward-input and --backward-weight.
    These are costs of one stage: with more chunks a device has more work, while compare keeps the work of each device.
    """
    from ..solver.search import search

    if group_size is not None and schedule == "auto":
        raise InputError("a search has no group size", hint="only --schedule interleaved has")
    started = time.monotonic()
    problem = read_problem(schedule=schedule, **request)
    check_writable(output)
    with search_progress(time_limit, problem.profile.time_unit) as report:
        plan = search(
            problem,
            schedule=schedule,
            group_size=group_size,
            backend=backend,
            time_limit=time_limit,
            seed=seed,
            report=report,
        )
    if output is not None:
        plan.save(output)
    if as_json:
        more = {"in_flight": in_flight(plan.timeline), "seconds": time.monotonic() - started}
        print_json(plan.as_json() | more | {"warnings": list(plan.warnings), "plan": output})
        return
    print_text(plan)
    other = reference(problem)
    if other is not None and other.schedule.orders != plan.schedule.orders:
        print_text(f"  against      {against(plan.timeline, other)}")
    if problem.stages > problem.devices and not request["profiles"]:
        print_text("  note         costs on the command line are per stage; compare keeps a device's work fixed")
    print_text("")
    print_table(*per_device(plan.timeline))
    if output is not None:
        print_text(f"\nsaved as {output}; look at it with: debubble show {output}")
