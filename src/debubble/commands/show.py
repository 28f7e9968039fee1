"""`debubble show`: the timeline in the terminal."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console

from ..api import verify
from ..compiler.pictures import terminal
from .options import schedule_file_options
from .output import print_diagnostics, terminal_width


@click.command("show")
@schedule_file_options
def command(file: str, **options: Any) -> int:
    """Draw the timeline of a plan or schedule in the terminal.

    An invalid schedule is drawn all the same where it can be executed, and its errors are said.
    """
    judgement = verify(file, **options)
    print_diagnostics(judgement)
    if judgement.timeline is not None:
        width = terminal_width()
        console = Console(file=sys.stdout, width=width, highlight=False)
        coloured = console.color_system is not None
        console.print(terminal.draw(judgement.timeline, width=width, coloured=coloured), soft_wrap=True)
    return judgement.exit_status
