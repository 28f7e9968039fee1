"""Megatron-LM's order tables: one line a device, chunk numbers from 1, positive forward and negative backward.

    1 1 2 2 -2 1 -2 2 -1 -2 -1 -2

The k-th appearance of a number is micro-batch k. Chunk c of device r is stage (c - 1) p + r, the loop placement.
Backwards are whole. Brackets and commas, as Python prints a list, may stand around the numbers.
"""

from __future__ import annotations

import re
from collections import Counter

from ..operation import Operation
from .drawing import Drawing, Row, lines, shown

DIALECT = "megatron"
_WORD = re.compile(r"[^ \t,\[\]()]+")
_NUMBER = re.compile(r"([+-]?)([1-9]\d{0,8})", re.ASCII)


def words(line: str) -> list[str]:
    return _WORD.findall(line)


def accepts(token: str) -> bool:
    return _NUMBER.fullmatch(token) is not None


def read(text: str) -> Drawing:
    """Read an order table. What it cannot read is reported, with line and column."""
    drawing = Drawing(DIALECT)
    rows = [(number, line) for number, line in lines(text) if _WORD.search(line)]
    for device, (number, line) in enumerate(rows):
        row = Row(number)
        seen: Counter[str] = Counter()
        for cell, word in enumerate(_WORD.finditer(line)):
            match = _NUMBER.fullmatch(word[0])
            if match is None:
                drawing.bad_token(word[0], _explain, number, word.start() + 1, device)
                continue
            kind = "BW" if match[1] == "-" else "F"
            stage = (int(match[2]) - 1) * len(rows) + device
            key = kind + match[2]
            row.add(Operation(kind, stage, seen[key]), word.start() + 1, cell)
            seen[key] += 1
        drawing.add(row)
    return drawing


def _explain(token: str) -> str:
    return f"{shown(token)} is not a chunk number such as 1 (forward) or -1 (backward)"
