"""`debubble export`: a plan in the format of another tool, or as a picture."""

from __future__ import annotations

import sys

import click

from ..compiler import files
from ..compiler.errors import InputError
from ..compiler.pictures import figure
from ..compiler.plan import Plan
from .options import check_writable

TEXT_FORMATS = ("text", "torch-csv", "torch-comms-csv")


@click.command("export")
@click.argument("plan", metavar="PLAN.json")
@click.option("--format", "format", type=click.Choice([*TEXT_FORMATS, *figure.FORMATS]), required=True)
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: standard output).")
def command(plan: str, format: str, output: str | None) -> None:
    """Write a plan in the format of another tool, or as a picture (svg and png need matplotlib)."""
    check_writable(output)
    loaded = Plan.load(plan)
    if format in figure.FORMATS:
        content = figure.draw(loaded.timeline, format=format)
    else:
        from ..compiler.interchange import export

        content = export(loaded, format).encode()
    if output is not None:
        files.write(output, content)
        return
    if format == "png" and sys.stdout.isatty():
        raise InputError("a PNG is not for a terminal", hint="name a file with -o")
    sys.stdout.buffer.write(content)
