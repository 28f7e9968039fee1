"""The timeline as a notebook shows it: the terminal's drawing as HTML."""

from __future__ import annotations

import io

from rich.console import Console

from ..simulation import Timeline
from . import terminal

_WIDTH = 120
_PAGE = '<pre style="line-height:normal;font-family:monospace">{code}</pre>'


def draw(summary: str, timeline: Timeline) -> str:
    """HTML of a summary and the coloured timeline under it; text is escaped."""
    console = Console(record=True, file=io.StringIO(), width=_WIDTH, force_terminal=True, color_system="truecolor")
    console.print(summary, markup=False, highlight=False, soft_wrap=True)
    console.print(terminal.draw(timeline, width=_WIDTH, coloured=True), soft_wrap=True)
    return console.export_html(inline_styles=True, code_format=_PAGE)
