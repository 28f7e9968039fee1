"""What benchmark scripts share: problems, the machine's description, and tables that are printed and kept."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
INSTANCES = importlib.import_module("instances").INSTANCES
"""Small problems with proven optima: the table that the tests use."""
cost_set = importlib.import_module("overlaps").cost_set
"""Random costs with overlapped pairs that save time: the sets that the tests use."""

RESULTS = Path(__file__).parent / "results"


def uniform(
    place: str,
    devices: int,
    microbatches: int,
    costs: Sequence[float],
    *,
    comm: float = 0.0,
    memory: tuple[float, float, float] = (2, -1, -1),
    cap: float | tuple[float, ...] | None = None,
    objective: str = "makespan",
    backward: str = "split",
) -> Problem:
    """A problem of equal stages; split backwards unless said otherwise, as in the published tables."""
    where = placement.named(place, devices=devices)
    stage = Stage(forward=costs[0], backward_input=costs[1], backward_weight=costs[2], memory=Memory(*memory))
    profile = Profile(stages=(stage,) * where.stages, comm=comm)
    return Problem(profile, where, microbatches, cap, objective, backward)


def machine() -> str:
    """One line on where a table was measured."""
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}, debubble {version('debubble')}"
    )


class Table:
    """A Markdown table that prints its rows as they come, and can be kept under results/."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self.lines = [f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        print("\n".join(self.lines), flush=True)

    def row(self, *cells: object) -> None:
        line = "| " + " | ".join(_text(c) for c in cells) + " |"
        self.lines.append(line)
        print(line, flush=True)


def _text(cell: object) -> str:
    """Rates to four digits, other numbers as short as they are."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if 0 < abs(cell) < 1 else f"{cell:.10g}"
    return str(cell)


def arguments(description: str, name: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--save", action="store_true", help=f"keep the tables as results/{name}.md")
    return parser


def save(name: str, tables: Iterable[Table]) -> None:
    """Keep tables under results/ with the machine, the date and the command."""
    RESULTS.mkdir(exist_ok=True)
    command = f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip()
    text = "\n\n".join("\n".join(table.lines) for table in tables)
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{machine()}\n\n    {command}\n\n{text}\n")
