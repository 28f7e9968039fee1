"""What commands print: results on standard output, diagnostics on standard error."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from ..compiler.interchange import Judgement
from ..summary import table


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object; numbers that JSON does not have become null."""
    sys.stdout.write(json.dumps(_finite(content), ensure_ascii=False) + "\n")


def print_diagnostics(judgement: Judgement) -> None:
    """Say on standard error what was found in a file, with --json too."""
    if judgement.report.errors or judgement.report.warnings:
        sys.stderr.write(f"{judgement.diagnostics()}\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def print_text(text: object) -> None:
    sys.stdout.write(f"{text}\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the terminal at most, where it can be."""
    print_text(table(header, rows, terminal_width()))


def print_csv(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of the same keys as CSV: numbers to ten digits, those of a list with blanks between them."""
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: " ".join(map(_cell, v)) if isinstance(v, list) else _cell(v) for k, v in row.items()})


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def terminal_width() -> int:
    """Columns of the terminal (or what COLUMNS says), 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns
