"""The timeline as text for a terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from rich.style import Style
from rich.text import Text

from ..operation import Step, parts
from ..simulation import Timeline
from . import style

MAX_COLUMNS_PER_UNIT = 4
_NARROWEST = 10


def draw(timeline: Timeline, *, width: int, coloured: bool) -> Text:
    """One line per device, an axis and a legend, at most `width` columns wide.

    Where every start and end is a multiple of one unit and there is room, each unit takes the same number of columns;
    otherwise times are rounded to columns, and where steps are narrower than columns, each column shows the mixture of
    its steps; the last line says what a column is. `coloured` drawings tell kinds by colour and carry micro-batch
    numbers; plain ones carry letters too. Where a number of a line does not fit, the line has none.
    """
    problem = timeline.problem
    unit = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
    names = [f"{device} " for device in range(problem.devices)]
    peaks = [
        f" {peak:.4g}" + ("" if math.isinf(cap) else f"/{cap:.4g}")
        for peak, cap in zip(timeline.peak_memory, problem.caps, strict=True)
    ]
    room = max(_NARROWEST, width - max(map(len, names)) - max(map(len, (*peaks, " peak"))))
    columns, exact = _scale(timeline, room)
    begin = min((starts[0] for starts in timeline.starts if starts), default=0.0)
    per_time = columns / timeline.makespan if timeline.makespan else 0.0
    margin = max(map(len, names))
    mixed = bool(timeline.makespan) and not exact and max(map(len, timeline.schedule.orders)) > columns
    text = Text(" " * (margin + columns) + " peak\n", no_wrap=True)
    bare = False
    for device, order in enumerate(timeline.schedule.orders):
        text.append(names[device].rjust(margin))
        if mixed:
            text.append_tokens(_mixtures(timeline, device, columns, coloured))
            text.append(peaks[device] + "\n")
            continue
        blocks = [
            (step, round((start - begin) * per_time), round((end - begin) * per_time))
            for step, start, end in zip(order, timeline.starts[device], timeline.ends[device], strict=True)
        ]
        numbered = all(
            len(_letters(timeline, device, step, coloured) + style.label(step)) <= right - left
            for step, left, right in blocks
            if right > left
        )
        bare = bare or not numbered
        done = 0
        for step, left, right in blocks:
            text.append(" " * (left - done))
            text.append(*_block(timeline, device, step, right - left, coloured, numbered))
            done = right
        text.append(" " * (columns - done) + peaks[device] + "\n")
    text.append(" " * margin + _axis(timeline.makespan, columns) + "\n")
    text.append_tokens(_legend(timeline, width, coloured))
    text.append(f"{timeline.makespan / columns:.4g}{unit} a column")
    if mixed:
        shown = "the mixture of their colours" if coloured else "the kind that takes most of it"
        text.append(f", for several steps: {shown}")
    elif not exact:
        text.append(", rounded")
    if bare:
        text.append("; no micro-batch numbers on lines where not all fit")
    if style.has_chunks(problem) and not mixed:
        text.append(f"; {style.CHUNKS if coloured else 'every second stage of a device is in lower case'}")
    return text


def _legend(timeline: Timeline, width: int, coloured: bool) -> Iterator[tuple[str, Style | str]]:
    """What every kind and a transfer cost, in as many lines as it takes."""
    problem = timeline.problem
    room = width
    for kind, meaning in [*style.legend(problem, style.kinds(timeline)), ("", style.transfer_text(problem))]:
        letters = "P" if kind == "pair" and not coloured else kind
        sample = "" if not kind else f" {letters} " if coloured else f"{letters}:"
        words = f" {meaning}  " if kind else meaning
        if len(sample + words.rstrip()) > room:
            yield "\n", ""
            room = width
        room -= len(sample + words)
        colour = style.COLOURS.get(kind, "")
        yield sample, Style(color=style.ink(colour), bgcolor=colour) if coloured and colour else ""
        yield words, ""
    yield "\n", ""


def _scale(timeline: Timeline, room: int) -> tuple[int, bool]:
    """How many columns the makespan takes, and whether every start and end falls between two of them."""
    moments = [moment for times in (*timeline.starts, *timeline.ends) for moment in times]
    cells = _units(moments, timeline.makespan, room)
    if cells is None:
        return room, False
    return cells * min(MAX_COLUMNS_PER_UNIT, room // cells), True


def _units(moments: list[float], makespan: float, room: int) -> int | None:
    """The number of equal units in the makespan such that all moments are multiples of one; None when above `room`."""
    if not makespan:
        return None
    begin = min(moments)
    shares = {(moment - begin) / makespan for moment in moments}
    cells = 1
    for share in shares:
        cells = math.lcm(cells, Fraction(share).limit_denominator(room).denominator)
        if cells > room:
            return None
    exact = all(math.isclose(share * cells, round(share * cells), abs_tol=1e-6) for share in shares)
    return cells if exact else None


def _block(
    timeline: Timeline, device: int, step: Step, width: int, coloured: bool, numbered: bool
) -> tuple[str, Style | str]:
    """The text of one step, `width` columns wide, and its style."""
    letters = _letters(timeline, device, step, coloured)
    shown = letters + style.label(step) if numbered else letters
    if not coloured:
        return shown.ljust(width, "-")[:width], ""
    colour = style.colour(timeline.problem, device, step)
    if parts(step)[0].microbatch % 2:  # so that neighbours can be told apart
        colour = style.lighter(colour, 0.16)
    margin = " " * max(0, (width - len(shown)) // 2)
    return f"{margin}{shown}".ljust(width)[:width], Style(color=style.ink(colour), bgcolor=colour)


def _mixtures(timeline: Timeline, device: int, columns: int, coloured: bool) -> Iterator[tuple[str, Style | str]]:
    """A character for each column, for steps narrower than columns: in the mean of the colours of its steps, or the
    letter of the kind that takes most of it. Blank where the device idles for most of it."""
    begin = min(starts[0] for starts in timeline.starts if starts)
    width = timeline.makespan / columns
    shares: list[dict[str, float]] = [defaultdict(float) for _ in range(columns)]
    for step, start, end in zip(
        timeline.schedule.orders[device], timeline.starts[device], timeline.ends[device], strict=True
    ):
        left, right = (start - begin) / width, min((end - begin) / width, columns)
        look = style.colour(timeline.problem, device, step) if coloured else _kind(step)
        for column in range(int(left), math.ceil(right)):
            shares[column][look] += min(right, column + 1) - max(left, column)
    for share in shares:
        if sum(share.values()) < 0.5:
            yield " ", ""
        elif coloured:
            yield " ", Style(bgcolor=style.mixture(share))
        else:
            yield max(share, key=lambda letters: share[letters])[0], ""


def _kind(step: Step) -> str:
    return "P" if style.kind(step) == "pair" else style.kind(step)


def _letters(timeline: Timeline, device: int, step: Step, coloured: bool) -> str:
    """The kind, in lower case for every second stage of a device; nothing where colours say it."""
    if coloured:
        return ""
    held = timeline.problem.placement.copies[device]
    return _kind(step).lower() if held.index(parts(step)[0].stage) % 2 else _kind(step)


def _axis(makespan: float, columns: int) -> str:
    """Round times under the columns where they fall."""
    line = ""
    step = _round_step(makespan / max(1, columns // 10)) if makespan else 0.0
    count = 0
    while step and count * step <= makespan * (1 + 1e-9):
        column = round(count * step / makespan * columns)
        label = f"{count * step:g}"
        if column + len(label) > columns + 6:
            break
        line = line.ljust(column) + label
        count += 1
    return line


def _round_step(least: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
