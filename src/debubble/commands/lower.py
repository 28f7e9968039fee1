"""`debubble lower`: make a runnable plan of a schedule file."""

from __future__ import annotations

from typing import Any

import click

from ..api import lower, verify
from .options import check_writable, json_option, schedule_file_options
from .output import print_diagnostics, print_json, print_text


@click.command("lower")
@schedule_file_options
@click.option("-o", "--output", metavar="PLAN.json", required=True, help="Where to save the plan.")
@json_option
def command(file: str, output: str, as_json: bool, **options: Any) -> int:
    """Make a plan of a schedule that was written by hand or exported from another tool.

    The order on every device is kept; sends, receives and buffers are added.
    """
    check_writable(output)
    judgement = verify(file, **options)
    if not judgement.valid:
        print_diagnostics(judgement)
        if as_json:
            print_json(judgement.as_json())
        return judgement.exit_status
    plan = lower(file, **options)
    plan.save(output)
    if as_json:
        print_json(plan.as_json() | {"plan": output, "warnings": judgement.as_json()["warnings"], "errors": []})
    else:
        print_text(f"{plan}\n\nsaved as {output}; run it with: debubble run {output} --model FILE.py:FUNCTION")
    return 0
