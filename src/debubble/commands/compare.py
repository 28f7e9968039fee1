"""`debubble compare`: every named schedule and the search, in one table."""

from __future__ import annotations

from typing import Any

import click

from ..compiler.errors import InputError
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
        rows = compare(
            problem,
            backend=backend,
            time_limit=time_limit,
            seed=seed,
            report=report,
            group_size=group_size,
            finalise=finalise,
        )
    if as_json:
        print_json({"objective": problem.objective, "rows": [row.as_json() for row in rows]})
        return
    if as_csv:
        print_csv([row.as_json() for row in rows])
        return
    header = ["schedule", "placement", problem.objective, "bubble", "idle", "gap", "peak", "sent", "wts"]
    lines = []
    for row in rows:
        found = row.timeline
        line = [row.name, str(found.problem.placement), f"{found.value:g}"]
        line += map(_percent, (found.bubble_ratio(), found.idle_fraction, row.gap))
        peak = f"{max(found.peak_memory):g}{'' if row.fits else '!'}"
        line += [peak, str(row.transfers), f"{row.weights:g}x"]
        lines.append([*line, *([] if row.step is None else [f"{row.step:g}"])])
    print_table([*header, "step"] if finalise is not None else header, lines)
    print_text(f"\nsorted by {problem.objective}{units(problem)}\n{_NOTE}")
    if finalise is not None:
        print_text(_STEP)
    if any(row.pairs for row in rows):
        ratio = problem.profile.overlapped_pair
        print_text(_PAIRS.format("the sum of their times" if ratio is None else "what overlapped_pair says"))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if value < 1 else f"{value:.0%}"
