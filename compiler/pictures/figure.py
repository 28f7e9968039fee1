"""The timeline as a figure, in SVG or PNG, with matplotlib."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..operation import parts
from ..simulation import Timeline
from . import style
from .canvas import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_STEPS = 20_000
"""Timelines of more steps are refused: no figure could show them."""
NAMED_LINES = 8
"""With more devices, only the first and the last line of the memory curves are named."""
_INCHES = 10.0
_POINTS = 72.0
_SMALLEST = 4.0
"""Numbers that would need smaller letters (in points) than this are left out."""


def draw(timeline: Timeline, *, format: str) -> bytes:
    """The figure as SVG or PNG: the devices' timelines, a legend with the costs, and below, in thin lines, memory.

    Raises InputError when matplotlib (the extra `plot`) is missing, or when there are too many steps to draw.
    """
    steps = sum(map(len, timeline.schedule.orders))
    if steps > MAX_STEPS:
        raise InputError(f"a figure of {steps} steps cannot be read; at most {MAX_STEPS} are drawn", code="too-large")
    devices = timeline.problem.devices
    lanes, memory = 0.3 * devices, 1.1

    def paint(figure: Figure) -> None:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(lanes, memory))
        _draw_lanes(figure, top, timeline)
        _draw_memory(bottom, timeline)

    return render(paint, width=_INCHES, height=lanes + memory + 1.2, format=format)


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
            if len(boxes) > 1:
                axes.add_patch(Rectangle((left, device - 0.45), width, 0.9, fill=False, edgecolor="black", lw=0.7))
    axes.set(ylim=(problem.devices - 0.4, -0.6), ylabel="device", yticks=range(problem.devices))
    axes.set_facecolor("#f2f2f2")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    _draw_legend(figure, timeline)
    unit = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
    ratio = timeline.bubble_ratio(timeline.makespan)
    axes.set_title(
        f"{timeline.schedule.method}: {problem.devices} devices, {problem.microbatches} micro-batches, "
        f"makespan {timeline.makespan:g}{unit}" + ("" if ratio is None else f", bubble ratio {ratio:.1%}"),
        loc="left",
        fontsize=10,
    )


def _draw_legend(figure: Figure, timeline: Timeline) -> None:
    """What every kind and a transfer cost, under the figure; a pair's sample is a forward above a backward, framed."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    problem = timeline.problem
    handles: list[Any] = []  # a tuple is one sample of several artists, which the types of Figure.legend do not know
    names = []
    for kind, text in style.legend(problem, style.kinds(timeline)):
        if kind == "pair":
            halves = (Rectangle((0, 0), 1, 1, fc=style.COLOURS[half], ec="black", lw=0.7) for half in ("F", "BW"))
            handles.append(tuple(halves))
            names.append(text)
        else:
            handles.append(Rectangle((0, 0), 1, 1, facecolor=style.COLOURS[kind]))
            names.append(f"{kind}  {text}")
    handles.append(Line2D([], [], lw=0))  # transfers are not drawn
    names.append(style.transfer_text(problem))
    if style.has_chunks(problem):
        shades = (style.lighter("#333333", share) for share in (0.0, style.SECOND_STAGE))
        handles.append(tuple(Rectangle((0, 0), 1, 1, facecolor=shade) for shade in shades))
        names.append(style.CHUNKS)
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=4 if len(handles) < 5 else 3,
        frameon=False,
        handlelength=1.6,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
    )


def _draw_memory(axes: Axes, timeline: Timeline) -> None:
    """What every device holds over time, and the caps."""
    from matplotlib import colormaps

    problem = timeline.problem
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    shades = colormaps["viridis"].resampled(problem.devices + 1)  # the lightest is too light for a line
    for device in range(problem.devices):
        moments = _moments(timeline, device)
        times, held = zip(*moments, (begin + timeline.makespan, moments[-1][1]), strict=True)
        name = f"device {device}" if problem.devices <= NAMED_LINES or device in (0, problem.devices - 1) else None
        axes.step([time - begin for time in times], held, where="post", color=shades(device), lw=1, label=name)
    for cap in sorted({cap for cap in problem.caps if not math.isinf(cap)}):
        axes.axhline(cap, color="#d55e00", lw=1, ls="--", label="cap" if cap == min(problem.caps) else None)
    memory_unit = f" ({problem.profile.memory_unit})" if problem.profile.memory_unit else ""
    time_unit = f" ({problem.profile.time_unit})" if problem.profile.time_unit else ""
    axes.set(xlim=(0, timeline.makespan or 1), ylabel=f"memory{memory_unit}", xlabel=f"time{time_unit}")
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
    axes.legend(
        ncols=NAMED_LINES + 1,
        frameon=False,
        fontsize=7,
        handlelength=1.5,
        loc="lower right",
        bbox_to_anchor=(1, 0.98),
        borderaxespad=0.0,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _moments(timeline: Timeline, device: int) -> list[tuple[float, float]]:
    """The memory curve without the dips of no length between a release and the next increase."""
    moments = []
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    for time, changes in itertools.groupby(timeline.memory_curve(device), key=lambda change: max(change[0], begin)):
        levels = [held for _, held in changes]
        moments += [(time, max(levels)), (time, levels[-1])]
    return moments
