"""The timeline as a figure, in SVG or PNG, with matplotlib."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from ..errors import InputError
from ..operation import parts
from ..simulation import Timeline
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
MAX_STEPS = 20_000
"""Timelines of more steps are refused: no figure could show them."""
_INCHES = 10.0
_POINTS = 72.0
_SMALLEST = 4.0
"""Numbers that would need smaller letters (in points) than this are left out."""


def draw(timeline: Timeline, *, format: str) -> bytes:
    """The figure as SVG or PNG: the devices' timelines, a legend with the costs, and below, in thin lines, memory.

    Raises InputError when matplotlib (the extra `plot`) is missing, or when there are too many steps to draw.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "figures need matplotlib", code="missing-package", hint="pip install 'debubble[plot]'"
        ) from None
    steps = sum(map(len, timeline.schedule.orders))
    if steps > MAX_STEPS:
        raise InputError(f"a figure of {steps} steps cannot be read; at most {MAX_STEPS} are drawn", code="too-large")
    with rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "debubble"}):
        devices = timeline.problem.devices
        lanes, memory = 0.3 * devices, 1.1
        figure = Figure(figsize=(_INCHES, lanes + memory + 1.2), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(lanes, memory))
        _draw_lanes(figure, top, timeline)
        _draw_memory(bottom, timeline)
        buffer = io.BytesIO()
        metadata = {"Date": None} if format == "svg" else None
        figure.savefig(buffer, format=format, dpi=200, metadata=metadata)
    return buffer.getvalue()


def _draw_lanes(figure: Figure, axes: Axes, timeline: Timeline) -> None:
    """One lane per device, one box per operation (the forward of a pair above its backward), the micro-batch's number
    where it fits."""
    from matplotlib.patches import Rectangle

    problem = timeline.problem
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    per_point = timeline.makespan / (_INCHES * 0.9 * _POINTS) if timeline.makespan else 1.0
    for device, order in enumerate(timeline.schedule.orders):
        for step, start, end in zip(order, timeline.starts[device], timeline.ends[device], strict=True):
            left, width = start - begin, end - start
            boxes = parts(step)
            height = 0.9 / len(boxes)
            for row, operation in enumerate(boxes):
                colour = style.colour(problem, device, operation)
                top = device - 0.45 + row * height
                axes.add_patch(Rectangle((left, top), width, height, facecolor=colour, edgecolor="white", lw=0.4))
                text = style.label(operation)
                size = min(7.5, (width / per_point - 1) / (0.65 * len(text)))
                if size >= _SMALLEST:
                    middle = (left + width / 2, top + height / 2)
                    axes.annotate(text, middle, ha="center", va="center", fontsize=size, color=style.ink(colour))
    axes.set(ylim=(problem.devices - 0.4, -0.6), ylabel="device", yticks=range(problem.devices))
    axes.set_facecolor("#f2f2f2")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    kinds = {style.kind(step) for order in timeline.schedule.orders for step in order}
    entries = [entry for entry in style.legend(problem, kinds) if entry[0] != "pair"]
    handles = [Rectangle((0, 0), 1, 1, facecolor=style.COLOURS[kind]) for kind, _ in entries]
    names = [f"{kind}  {meaning}" for kind, meaning in entries]
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles), frameon=False, handlelength=1.2)
    unit = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
    ratio = timeline.bubble_ratio(timeline.makespan)
    axes.set_title(
        f"{timeline.schedule.method}: {problem.devices} devices, {problem.microbatches} micro-batches, "
        f"makespan {timeline.makespan:g}{unit}" + ("" if ratio is None else f", bubble ratio {ratio:.1%}"),
        loc="left",
        fontsize=10,
    )


def _draw_memory(axes: Axes, timeline: Timeline) -> None:
    """What every device holds over time, and the caps."""
    problem = timeline.problem
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    shades = [style.lighter("#333333", 0.75 * d / max(1, problem.devices - 1)) for d in range(problem.devices)]
    for device, shade in enumerate(shades):
        moments = [(max(0.0, time - begin), held) for time, held in timeline.memory_curve(device)]
        times, held = zip(*moments, (timeline.makespan, moments[-1][1]), strict=True)
        name = f"device {device}" if device in (0, problem.devices - 1) else None
        axes.step(times, held, where="post", color=shade, lw=1, label=name)
    for cap in sorted({cap for cap in problem.caps if not math.isinf(cap)}):
        axes.axhline(cap, color="#d55e00", lw=1, ls="--", label="cap" if cap == min(problem.caps) else None)
    memory_unit = f" ({problem.profile.memory_unit})" if problem.profile.memory_unit else ""
    time_unit = f" ({problem.profile.time_unit})" if problem.profile.time_unit else ""
    time = f"time{time_unit}; {style.transfer_text(problem)}"
    axes.set(xlim=(0, timeline.makespan or 1), ylabel=f"memory{memory_unit}", xlabel=time)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
    axes.legend(loc="lower center", ncols=3, frameon=False, fontsize=7, handlelength=1.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
