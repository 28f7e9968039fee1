"""The CSV of torch.distributed.pipelining: one line a rank, one cell a step, empty cells idle.

Two sets of letters exist. In `torch` a cell is F, I (input gradient), W (weight gradient) or B (full backward); in
`torch-legacy`, written before that change, B is the input gradient and BW the full backward. A file with F and B alone
has full backwards in both. Files with communication hold SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and
REDUCE_GRAD as well, and no idle cells.
"""

from __future__ import annotations

import re
from functools import partial

from ..diagnostic import Report
from ..operation import Operation, Pair, Step
from ..schedule import Schedule
from .drawing import Communication, Drawing, Item, Row, lines, make_pair, shown

DIALECTS = ("torch", "torch-legacy")
LETTERS = {
    "torch": {"F": "F", "I": "B", "W": "W", "B": "BW"},
    "torch-legacy": {"F": "F", "B": "B", "W": "W", "BW": "BW"},
}
_OPERATION = re.compile(r"[ \t]*(\d{1,9})(F|I|BW|B|W)(\d{1,9})[ \t]*", re.ASCII)
_TRANSFERS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
_TRANSFER = re.compile(rf"(\d{{1,9}})({'|'.join(_TRANSFERS)})(\d{{1,9}})", re.ASCII)
_WHOLE_STAGE = re.compile(r"(\d{1,9})(UNSHARD|RESHARD|REDUCE_GRAD)", re.ASCII)
_OVERLAP = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_CELL = re.compile(
    rf"""(?:[ \t]*(\d{{1,9}})(F|I|BW|B|W|{"|".join(_TRANSFERS)})(\d{{1,9}})[ \t]*|("[^"]*"|[^,]*))(?:,|$)""", re.ASCII
)


def letters(text: str) -> tuple[str, Report]:
    """Which letters a file uses, with a warning where that is a choice."""
    report = Report()
    if re.search(r"\dI\d", text) or not re.search(r"\dW\d", text):
        return "torch", report
    report.warning(
        "dialect",
        "read as torch-legacy, where B is the input gradient: the file has W but no I, and in today's letters (torch, "
        "B the full backward) each W would be a second weight gradient (settle it with --dialect)",
    )
    return "torch-legacy", report


def read(text: str, dialect: str) -> Drawing:
    """Read a file in the letters of `dialect`. What it cannot read is reported, with line and column."""
    kinds = LETTERS[dialect]
    if dialect == "torch-legacy" and not re.search(r"\dW\d", text):
        kinds = {**kinds, "B": "BW"}
    drawing = Drawing(dialect, letters={kind: letter for letter, kind in kinds.items() if letter != kind})
    blank = 0
    for number, line in lines(text):
        if not line.strip(" \t,"):
            blank += 1
            continue
        for _ in range(blank):
            drawing.add(Row(number))
        blank = 0
        drawing.add(_read_row(drawing, number, line, kinds))
    return drawing


def _read_row(drawing: Drawing, number: int, line: str, kinds: dict[str, str]) -> Row:
    row = Row(number)
    for cell, found in enumerate(_CELL.finditer(line)):
        stage, letter, microbatch, other = found.groups()
        if letter in kinds:
            row.add(Operation(kinds[letter], int(stage), int(microbatch)), found.start(1) + 1, cell)
            continue
        if letter in _TRANSFERS:
            row.add(Communication(letter, int(stage), int(microbatch)), found.start(1) + 1, cell)
            continue
        text = found[0].removesuffix(",") if other is None else other
        token = text.strip(' \t"')
        if not token:
            continue
        column = found.start() + text.index(token) + 1
        item = parse(token, kinds)
        if item is None:
            explain = partial(_explain, dialect=drawing.dialect, kinds=kinds)
            drawing.bad_token(token, explain, number, column, len(drawing.rows))
        else:
            row.add(item, column, cell)
    return row


def words(line: str) -> list[str]:
    """The cells of a line that are not idle."""
    return [cell for cell in (found.strip(' \t"') for found in line.split(",")) if cell]


def accepts(cell: str) -> bool:
    """True when a stripped cell is an action in any letters."""
    return parse(cell, {**LETTERS["torch"], "BW": "BW"}) is not None


def parse(token: str, kinds: dict[str, str]) -> Item | None:
    """One stripped cell; None when it is no action."""
    if match := _OPERATION.fullmatch(token):
        kind = kinds.get(match[2])
        return Operation(kind, int(match[1]), int(match[3])) if kind else None
    if match := _TRANSFER.fullmatch(token):
        return Communication(match[2], int(match[1]), int(match[3]))
    if match := _WHOLE_STAGE.fullmatch(token):
        return Communication(match[2], int(match[1]), None)
    if match := _OVERLAP.fullmatch(token):
        halves = [parse(half.strip(" \t"), kinds) for half in match.groups()]
        if all(isinstance(half, Operation) for half in halves):
            return make_pair(*halves)  # type: ignore[arg-type]
    return None


def _explain(token: str, dialect: str, kinds: dict[str, str]) -> str:
    """What is wrong with a cell, and how to mend it."""
    if match := _OPERATION.fullmatch(token):
        if match[2] == "BW":
            return (
                f"{shown(token)}: torch writes a full backward as B (hint: {match[1]}B{match[3]}, or --dialect "
                f"torch-legacy)"
            )
        return f"{shown(token)}: {dialect} has no {match[2]} (hint: --dialect torch)"
    if _OVERLAP.fullmatch(token):
        return f"{shown(token)}: a pair overlaps a forward with a backward, as in (2F3;2B1)OVERLAP_F_B"
    if token.startswith("#"):
        return f"{shown(token)}: a torch CSV has no comments"
    if re.search(r"[;|\t]|[^ ] +[^ ]", token) and not token.startswith("("):
        return f"{shown(token)}: cells are separated by commas"
    for pattern in (_TRANSFER, _WHOLE_STAGE, _OPERATION):
        if (start := pattern.match(token)) and start.end() < len(token):
            return f"{shown(token)}: {shown(token[start.end() :])} does not belong after {start[0]}"
    if re.fullmatch(r"\d{1,9}(?:SEND_F|RECV_F|SEND_B|RECV_B|F|I|W|B)", token):
        return f"{shown(token)}: the micro-batch is missing (hint: {token}0)"
    if re.fullmatch(r"F\d+_s\d+|[BWI]\d+_s\d+", token):
        return f"{shown(token)} belongs in a printed table, steps down and devices across (hint: --dialect printed)"
    if re.fullmatch(r"[FIBW]\d+", token):
        return f"{shown(token)}: torch's files name the stage too (hint: 2{token} for stage 2)"
    if token.upper() != token and parse(token.upper(), kinds):
        return f"{shown(token)}: letters are capitals (hint: {token.upper()})"
    return f"{shown(token)} is not an action such as 2F0, 2I0, 2W0, 2B0 or 2SEND_F0"


def write(schedule: Schedule) -> str:
    """The compute-only CSV in today's letters."""
    return "".join(",".join(map(step_text, order)) + "\n" for order in schedule.orders)


def step_text(step: Step) -> str:
    """A step in today's letters."""
    if isinstance(step, Pair):
        return f"({step_text(step.forward)};{step_text(step.backward)})OVERLAP_F_B"
    letter = {"F": "F", "B": "I", "W": "W", "BW": "B"}[step.kind]
    return f"{step.stage}{letter}{step.microbatch}"
