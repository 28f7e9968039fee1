"""Megatron-LM's layout strings: which layers each stage of a looped pipeline holds.

`Et*3|(tt|)*29,m|L` is 32 stages: an embedding and three layers, 29 times two layers, a prediction layer, the loss. `|`
ends a stage, `*n` repeats a letter or a group in brackets, commas are for the eye. A stage may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ..errors import InputError
from ..placement import Placement, loop
from ..wording import counted
from .drawing import shown

MAX_LETTERS = 2**16
_TOKEN = re.compile(r"\(([^()]*)\)(?:\*(\d{1,5}))?|([A-Za-z|])(?:\*(\d{1,5}))?", re.ASCII)


def is_layout(text: str) -> bool:
    return "|" in text


def read(text: str) -> tuple[str, ...]:
    """The letters of each stage. Raises InputError when the string is not a layout."""
    stripped = re.sub(r"[,\s]", "", text)
    expanded = _expand(stripped, text)
    return tuple(expanded.split("|"))


def write(stages: Sequence[str]) -> str:
    """The shortest string of this form: repeated letters and stages once, with their number."""
    letters = [_short(stage) for stage in stages]
    return _short([f"{stage}|" for stage in letters[:-1]]) + letters[-1]


def _short(units: Sequence[str]) -> str:
    """The units one after the other, runs of the same one with their number where that is shorter."""
    return "".join(_repeated(unit, sum(1 for _ in run)) for unit, run in groupby(units))


def _repeated(unit: str, times: int) -> str:
    short = unit * times
    long = f"{unit if len(unit) == 1 else f'({unit})'}*{times}"
    return long if len(long) < len(short) else short


def _expand(part: str, whole: str) -> str:
    place, out = 0, ""
    while place < len(part):
        match = _TOKEN.match(part, place)
        if match is None:
            raise InputError(
                f"layout {shown(whole)}: {part[place]!r} is not a letter, |, or a group in brackets",
                hint="for example Et*3|(tt|)*29,m|L",
            )
        group, times, letter, letter_times = match.groups()
        unit = letter if letter is not None else _expand(group, whole)
        out += unit * int(times or letter_times or 1)
        if len(out) > MAX_LETTERS:
            raise InputError(f"layout: more than {MAX_LETTERS} layers")
        place = match.end()
    return out


def placed(text: str, devices: int) -> Placement:
    """The loop placement of a layout. Raises InputError when its stages do not divide among the devices."""
    stages = len(read(text))
    if stages % devices:
        raise InputError(
            f"layout: {counted(stages, 'stage')} do not divide among {counted(devices, 'device')}", code="stage-count"
        )
    return loop(devices, stages // devices)
