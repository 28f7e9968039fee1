"""The front of time against memory as a figure, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .canvas import render
from .style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Dot:
    """One plan: the memory it holds, its time, what it is, and whether its time is proved the best."""

    memory: float
    time: float
    label: str = ""
    proved: bool = False


def draw(
    front: Sequence[Dot],
    others: Sequence[Dot],
    floors: Sequence[tuple[float, float]],
    yardstick: Dot,
    *,
    time: str,
    memory: str,
    format: str,
) -> bytes:
    """The front as steps, proved plans filled; the plans it beats, grey; `floors` (memory, lower bound), dashed.

    `time` and `memory` are the names of the axes. Raises InputError when matplotlib is missing.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        places = ([dot.memory for dot in others], [dot.time for dot in others])
        axes.plot(*places, "o", ms=3, color="#b0b0b0", label="beaten" if others else None)
        axes.plot(yardstick.memory, yardstick.time, "x", color=COLOURS["BW"], label=yardstick.label)
        if floors:
            axes.step(*zip(*floors, strict=True), where="pre", ls="--", lw=1, color=COLOURS["B"], label="lower bound")
        line = COLOURS["F"]
        axes.step([dot.memory for dot in front], [dot.time for dot in front], where="post", lw=1, color=line)
        for proved, name in ((True, "proved optimal for its placement and cap"), (False, "not proved")):
            dots = [dot for dot in front if dot.proved == proved]
            filling = line if proved else "white"
            places = ([dot.memory for dot in dots], [dot.time for dot in dots])
            axes.plot(*places, "o", ms=6, color=line, markerfacecolor=filling, label=name if dots else None)
        for dot in front:
            place = (dot.memory, dot.time)
            axes.annotate(dot.label, place, xytext=(5, 5), textcoords="offset points", fontsize=7)
        axes.set(xlabel=memory, ylabel=time)
        axes.margins(x=0.15, y=0.1)
        axes.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)

    return render(paint, width=7.0, height=4.5, format=format)
