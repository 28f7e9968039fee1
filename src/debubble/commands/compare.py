"""`debubble compare`: every named schedule and the search, in one table."""

from __future__ import annotations

import math
from typing import Any

import click

from ..compiler.errors import InputError
from ..compiler.problem import Problem
from ..progress import search_progress
from ..summary import units
from .options import Cap, json_option, problem_options, read_problem, search_options
from .output import print_csv, print_json, print_table, print_text

_NOTE = """bubble  bubble ratio, (T - ideal) / ideal: T the objective, ideal the busy time
        of the busiest device
idle    idle fraction, idle time of all devices / (devices x makespan)
gap     over a lower bound that holds for all schedules of the same placement
peak    memory of the fullest device; ! where a device is over its cap
sent    transfers between devices in a step
wts     copies of the weights that are held"""
_STEP = "step    until each device has finalised, too, which no other column counts"
_PAIRS = "pairs   an overlapped forward and backward take {}"


@click.command("compare")
@problem_options
@search_options
@click.option("--group-size", type=int, help="Show interleaved with groups of so many micro-batches, too.")
@click.option("--finalise", type=Cap(), help="What follows the last operation (all-reduce, optimizer), shown apart.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all columns as CSV.")
@json_option
def command(
    backend: str,
    time_limit: float,
    seed: int,
    group_size: int | None,
    finalise: float | tuple[float, ...] | None,
    as_csv: bool,
    as_json: bool,
    **request: Any,
) -> None:
    """Compare every named schedule and the search on one problem, best first.

    The work of each device is held fixed: with v chunks each stage has 1/v of the costs and the memory.
    """
    from ..comparison import compare

    if as_csv and as_json:
        raise InputError("either --csv or --json")
    problem = read_problem(**request)
    with search_progress(time_limit, problem.profile.time_unit) as report:
        found = compare(
            problem,
            backend=backend,
            time_limit=time_limit,
            seed=seed,
            report=report,
            group_size=group_size,
            finalise=finalise,
        )
    if as_json:
        rows = [row.as_json() for row in found.rows]
        print_json({"objective": problem.objective, "rows": rows, "interrupted": found.interrupted})
        return
    if as_csv:
        print_csv([row.as_json() for row in found.rows])
        return
    header = ["schedule", "placement", problem.objective, "bubble", "idle", "gap", "peak", "sent", "wts"]
    lines = []
    for row in found.rows:
        timeline = row.timeline
        line = [row.name, str(timeline.problem.placement), f"{timeline.value:g}"]
        line += map(_percent, (timeline.bubble_ratio(), timeline.idle_fraction, row.gap))
        peak = f"{max(timeline.peak_memory):g}{'' if row.fits else '!'}"
        line += [peak, str(row.transfers), f"{row.weights:g}x"]
        lines.append([*line, *([] if row.step is None else [f"{row.step:g}"])])
    print_table([*header, "step"] if finalise is not None else header, lines)
    print_text(f"\nsorted by {problem.objective}{units(problem)}{_capped(problem)}\n{_NOTE}")
    if finalise is not None:
        print_text(_STEP)
    if found.interrupted:
        print_text("interrupted: the search may be missing or not at its end, and gaps")
    if any(row.pairs for row in found.rows):
        ratio = problem.profile.overlapped_pair
        print_text(_PAIRS.format("the sum of their times" if ratio is None else "what overlapped_pair says"))


def _capped(problem: Problem) -> str:
    """Where those over the caps stand, and what the caps are."""
    low, high = min(problem.caps), max(problem.caps)
    if math.isinf(low):
        return ""
    return (
        f", those over the cap of {low:g} last" if low == high else f", those over the caps of {low:g} to {high:g} last"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if value < 1 else f"{value:.0%}"
