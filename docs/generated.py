"""Pages that are made when the site is built: the gallery, drawn by debubble itself, and the measured results."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from debubble.compiler import placement
from debubble.compiler.named import NAMED, PLACEMENTS, named_schedule
from debubble.compiler.pictures import figure
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.simulation import Timeline, simulate

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
DEVICES, MICROBATCHES = 4, 8


def on_files(files: Files, config: Any) -> Files:
    """What mkdocs calls before it builds: add the pages and pictures that are not files of the project."""
    timelines = {name: drawn(name) for name in NAMED}
    for name, timeline in timelines.items():
        picture = figure.draw(timeline, format="svg")
        files.append(File.generated(config, f"gallery/{name}.svg", content=picture))
    files.append(File.generated(config, "gallery.md", content=gallery(timelines)))
    files.append(File.generated(config, "results.md", content=results()))
    return files


def drawn(name: str) -> Timeline:
    """A named schedule where a device's F, B and W of a micro-batch take 1 each, and transfers take none."""
    where = placement.named(PLACEMENTS.get(name, "linear"), devices=DEVICES)
    cost = DEVICES / where.stages if not where.bidirectional else 1.0
    profile = Profile.uniform(stages=where.stages, forward=cost, backward_input=cost, backward_weight=cost)
    problem = Problem(profile, where, MICROBATCHES)
    return simulate(problem, named_schedule(name, problem))


def gallery(timelines: dict[str, Timeline]) -> str:
    """One section a schedule: where it is from, what it takes and holds here, and its timeline."""
    parts = [
        "# Gallery\n\nEvery schedule of the field that debubble knows by name, on four devices with eight micro-"
        "batches. A device's F, B and W of a micro-batch take 1 each, split evenly where it has several stages; "
        "transfers take no time; memory is counted in stages' activations, held to the end of W. "
        "`debubble compile --schedule NAME` makes each for your own costs."
    ]
    for name, timeline in timelines.items():
        about = inspect.cleandoc(NAMED[name].__doc__ or "")
        peaks = ", ".join(f"{peak:g}" for peak in timeline.peak_memory)
        ratio = timeline.bubble_ratio() or 0.0
        parts.append(
            f"## {name}\n\n{about}\n\nMakespan {timeline.makespan:g}, bubble ratio {ratio:.2%}, "
            f"peak memory by device {peaks}; {timeline.problem.placement.kind} placement.\n\n"
            f"![Timeline of {name}](gallery/{name}.svg)"
        )
    return "\n\n".join(parts) + "\n"


def results() -> str:
    """All tables that the benchmarks have kept."""
    parts = [
        "# Measured results\n\nEach table was printed by the command above it, on the machine and the date given; "
        "`make acceptance` prints them again. Gaps are against lower bounds that a checker recomputes."
    ]
    tables = (path.read_text() for path in sorted(RESULTS.glob("*.md")))
    parts.extend(table.replace("\n## ", "\n### ").replace("# ", "## ", 1).strip() for table in tables)
    return "\n\n".join(parts) + "\n"
