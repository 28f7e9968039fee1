"""`debubble export`: a plan in the format of another tool, or as a picture."""

from __future__ import annotations

import sys

import click

from ..compiler import files
from ..compiler.errors import InputError
from ..compiler.pictures import canvas, figure
from ..compiler.plan import Plan
from .options import check_writable

TEXT_FORMATS = ("text", "torch-csv", "torch-comms-csv")
BINARY_FORMATS = ("png", "perfetto")


@click.command("export")
@click.argument("plan", metavar="PLAN.json")
@click.option(
    "--format", "format", type=click.Choice([*TEXT_FORMATS, *canvas.FORMATS, "html", "perfetto"]), required=True
)
@click.option("--against", metavar="OTHER.json", help="A second plan to compare with, in html.")
@click.option("-o", "--output", metavar="FILE", help="Where to write it (default: standard output).")
def command(plan: str, format: str, against: str | None, output: str | None) -> None:
    """Write a plan in the format of another tool, or as a picture (svg and png need matplotlib)."""
    check_writable(output)
    if against is not None and format != "html":
        raise InputError(f"--against compares two plans in html, not in {format}")
    loaded = Plan.load(plan)
    content = _write(loaded, format, against)
    if loaded.problem.recompute != "none" and format in ("torch-csv", "torch-comms-csv"):
        again = f"--recompute {loaded.problem.recompute}"
        sys.stderr.write(f"warning: {format} cannot say what is recomputed; judge it with {again}\n")
    if output is not None:
        files.write(output, content)
        return
    if format in BINARY_FORMATS and sys.stdout.isatty():
        raise InputError(f"{format} is not for a terminal", hint="name a file with -o")
    sys.stdout.buffer.write(content)


def _write(plan: Plan, format: str, against: str | None) -> bytes:
    """The plan in one of the formats. Each writer is imported only where it is used."""
    if format in canvas.FORMATS:
        return figure.draw(plan.timeline, format=format)
    if format == "perfetto":
        from ..compiler.pictures import perfetto

        return perfetto.draw(plan.timeline)
    if format == "html":
        from ..compiler.pictures import html

        return html.draw([plan] if against is None else [plan, Plan.load(against)]).encode()
    from ..compiler.interchange import export

    return export(plan, format).encode()
