"""Printed tables of torch.distributed.pipelining: steps down, devices across.

             Rank 0 Rank 1
    Step 00: F0_s0  None
    Step 01: B0_s0  F0_s1

Older releases print the forward of micro-batch 0 at stage 1 as `F0_s1`, newer ones as in the CSV, `1F0`. Idle cells are
`None`, `.` or nothing; with nothing, the header says which column a cell belongs to.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from . import torch_csv
from .drawing import Drawing, Item, Row, lines, shown

DIALECT = "printed"
_LABEL = re.compile(r"[ \t]*(?:Step[ \t]*)?\d+[ \t]*:", re.IGNORECASE)
_HEADER = re.compile(r"(?:Rank|Device|GPU)[ \t]*\d+", re.IGNORECASE)
_CELL = re.compile(r"[^ \t|]+")
_NAME = re.compile(r"([FIWB])(\d{1,9})_s(\d{1,9})", re.ASCII)
_MARK = "<-- ERROR HERE"
_IDLE = ("None", ".")


def accepts(token: str) -> bool:
    """True when a word may stand in such a table."""
    return token in _IDLE or _NAME.fullmatch(token) is not None or torch_csv.accepts(token)


def fits(text: str) -> bool:
    """True when a text has what only such a table has: a name like F0_s1, a header, or steps."""
    return bool(re.search(r"(?<!\w)[FIWB]\d+_s\d", text) or _HEADER.search(text) or re.search(r"(?m)^[ \t]*Step", text))


def words(line: str) -> list[str]:
    """The cells of one line, without its label; none for a header."""
    if _HEADER.search(line):
        return []
    label = _LABEL.match(line)
    return _CELL.findall(line.partition(_MARK)[0], label.end() if label else 0)


def read(text: str) -> Drawing:
    """Read a printed table. What it cannot read is reported, with line and column."""
    split_letters = re.search(r"(?<!\w)I\d+_s|\dI\d", text) or not re.search(r"(?<!\w)W\d+_s|\dW\d", text)
    kinds = torch_csv.LETTERS["torch" if split_letters else "torch-legacy"]
    drawing = Drawing(DIALECT, letters={kind: letter for letter, kind in kinds.items() if letter != kind})
    if not split_letters:
        drawing.report.warning(
            "dialect", "B is read as the input gradient, because the table has W but no I (as torch printed it once)"
        )
    columns: list[int] | None = None
    step = 0
    for number, line in lines(text):
        if _HEADER.search(line):
            columns = [match.start() for match in _HEADER.finditer(line)]
            continue
        if not line.strip(" \t"):
            continue
        label = _LABEL.match(line)
        found = _CELL.finditer(line.partition(_MARK)[0], label.end() if label else 0)
        _read_step(drawing, [(cell[0], cell.start()) for cell in found], columns, number, step, kinds)
        step += 1
    return drawing


def _read_step(
    drawing: Drawing,
    cells: list[tuple[str, int]],
    columns: list[int] | None,
    number: int,
    step: int,
    kinds: dict[str, str],
) -> None:
    """One line: a cell for every device."""
    expected = len(columns) if columns else len(drawing.rows) if step else len(cells)
    while len(drawing.rows) < expected:
        row = Row(number)
        row.lines = array("I")
        drawing.add(row)
    if columns is None and len(cells) != expected:
        message = f"this step has {len(cells)} cells, but the first has {expected} (hint: write None for an idle one)"
        drawing.report.error("cell-count", message, line=number, column=1)
        return
    if columns is not None and len(cells) == len(columns):
        columns = None  # a full step: the order of its cells says more than where they stand
    for place, (token, start) in enumerate(cells):
        device = place if columns is None else max(0, bisect_right(columns, start) - 1)
        if token in _IDLE:
            continue
        row, item = drawing.rows[device], _parse(token, kinds)
        if item is None:
            drawing.bad_token(token, _explain, number, start + 1, device)
        elif row.items and row.end_cell > step:
            message = f"{shown(token)}: device {device} has another cell in this step"
            drawing.report.error("cell-count", message, device=device, line=number, column=start + 1)
        else:
            row.add(item, start + 1, step)
            assert row.lines is not None
            row.lines.append(number)
            drawing.entries += 1


def _parse(token: str, kinds: dict[str, str]) -> Item | None:
    if match := _NAME.fullmatch(token):
        token = f"{match[3]}{match[1]}{match[2]}"
    return torch_csv.parse(token, kinds)


def _explain(token: str) -> str:
    return f"{shown(token)} is not a cell such as F0_s1 or 1F0; idle cells are None"
