"""`debubble verify`: judge a plan, or a schedule of another tool."""

from __future__ import annotations

from typing import Any

import click

from ..api import verify
from ..compiler.streams import TRANSFERS
from ..summary import per_device
from .options import json_option, schedule_file_options
from .output import print_diagnostics, print_json, print_table, print_text


@click.command("verify")
@schedule_file_options
@click.option(
    "--transfers",
    type=click.Choice(TRANSFERS),
    default="rendezvous",
    show_default=True,
    help="Whether a send blocks until its receive is posted.",
)
@click.option("--forward-only", is_flag=True, help="The schedule has no backwards.")
@json_option
def command(file: str, as_json: bool, **options: Any) -> int:
    """Verify a plan, or a schedule that was written by hand or exported from another tool."""
    judgement = verify(file, **options)
    print_diagnostics(judgement)
    if as_json:
        print_json(judgement.as_json())
        return judgement.exit_status
    print_text(judgement.summary())
    if judgement.timeline is not None:
        print_text("")
        print_table(*per_device(judgement.timeline))
    return judgement.exit_status
