"""`debubble compare`: every named schedule and the search, in one table."""

from __future__ import annotations

from typing import Any

import click

from ..progress import search_progress
from ..summary import percent, units
from .options import json_option, problem_options, read_problem, search_options
from .output import print_json, print_table, print_text

_NOTE = """bubble  bubble ratio, (T - ideal) / ideal: T the objective, ideal the busy time of the busiest device
idle    idle fraction, idle time of all devices / (devices x makespan)
gap     how far above a lower bound that holds for every schedule on the same placement"""


@click.command("compare")
@problem_options
@search_options
@json_option
def command(backend: str, time_limit: float, seed: int, as_json: bool, **request: Any) -> None:
    """Compare every named schedule and the search on one problem, best first.

    The work of each device is held fixed: with v chunks each stage has 1/v of the costs and the memory.
    """
    from ..comparison import compare

    problem = read_problem(**request)
    with search_progress(time_limit, problem.profile.time_unit) as report:
        rows = compare(problem, backend=backend, time_limit=time_limit, seed=seed, report=report)
    if as_json:
        print_json({"objective": problem.objective, "rows": [row.as_json() for row in rows]})
        return
    lines = []
    for row in rows:
        found = row.timeline
        line = [row.name, str(found.problem.placement), f"{found.makespan:g}", f"{found.span:g}"]
        line += map(percent, (found.bubble_ratio(), found.idle_fraction, row.gap))
        lines.append([*line, "yes" if row.fits else "no", _peaks(found.peak_memory)])
    header = ["schedule", "placement", "makespan", "span", "bubble", "idle", "gap", "fits", "peak memory"]
    print_table(header, lines)
    print_text(f"\nsorted by {problem.objective}{units(problem)}\n{_NOTE}")


def _peaks(peaks: list[float]) -> str:
    """The peak memory of every device: one number where they agree, a range where they are many."""
    if len(set(peaks)) == 1:
        return f"{peaks[0]:g}"
    return " ".join(f"{peak:g}" for peak in peaks) if len(peaks) <= 4 else f"{min(peaks):g} to {max(peaks):g}"
