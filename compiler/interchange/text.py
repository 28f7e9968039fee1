"""The text form, for writing by hand: one line a device, tokens by blanks, `.` for an idle cell.

    # placement: linear
    F0 F1 .   .   .   BW0 BW1
    .  F0 F1  .   BW0 BW1
    .  .  F0  BW0 F1  BW1

`2F0` is stage 2, micro-batch 0; the stage may be left out where a device owns one. `F3+BW1` is an overlapped pair. `.`
draws idle and carries no time. Lines that begin with `#` are comments; `# placement:`, `# microbatches:` and
`# recompute:` are read.
"""

from __future__ import annotations

import re

from ..errors import InputError
from ..operation import Operation, Step
from ..problem import Problem
from ..schedule import Schedule
from .drawing import Drawing, Row, lines, make_pair, shown
from .inference import placed

DIALECT = "text"
TOKEN = re.compile(r"(\d{1,9})?(F|BW|B|W)(\d{1,9})(?:\+(\d{1,9})?(F|BW|B|W)(\d{1,9}))?", re.ASCII)
_WORD = re.compile(r"[^ \t]+")
_STATEMENT = re.compile(r"[ \t]*#[ \t]*(placement|microbatches|recompute)[ \t]*:[ \t]*(.*)", re.IGNORECASE)
_STAGE = re.compile(r"(?<![^ \t+])(\d{1,9})[FBW]", re.ASCII)


def words(line: str) -> list[str]:
    """The tokens of a line that is not a comment."""
    return [] if line.lstrip(" \t").startswith("#") else _WORD.findall(line)


def accepts(token: str) -> bool:
    return token == "." or TOKEN.fullmatch(token) is not None


def read(text: str) -> Drawing:
    """Read a file of the text form. What it cannot read is reported, with line and column."""
    drawing = Drawing(DIALECT)
    full_backwards = re.search(r"B\d", text) is not None and re.search(r"W\d", text) is None
    rows = []
    for number, line in lines(text):
        content = line.strip(" \t")
        if content.startswith("#"):
            _read_statement(drawing, line, number)
        elif content:
            rows.append((number, line))
    stated = _stated_stages(drawing, len(rows))
    for device, (number, line) in enumerate(rows):
        stages = sorted({int(stage) for stage in _STAGE.findall(line)})
        if not stages:
            stages = list(stated[device]) if device < len(stated) else [device]
        drawing.add(_read_row(drawing, device, number, line, full_backwards, stages))
    if full_backwards:
        drawing.report.warning(
            "full-backwards", "there are B but no W: every B is read as a full backward, which this form writes as BW"
        )
    return drawing


def _read_statement(drawing: Drawing, line: str, number: int) -> None:
    match = _STATEMENT.fullmatch(line)
    if match is None:
        return
    key, value = match[1].lower(), match[2].rstrip(" \t")
    if key == "placement":
        drawing.placement = value
    elif key == "recompute" and value.lower() in ("none", "all"):
        drawing.recompute = value.lower()
    elif re.fullmatch(r"\d{1,9}", value, re.ASCII):
        setattr(drawing, key, int(value))
    else:
        message = f"{key}: {shown(value)} is not a number"
        drawing.report.error("bad-comment", message, line=number, column=match.start(2) + 1)


def _read_row(drawing: Drawing, device: int, number: int, line: str, full_backwards: bool, stages: list[int]) -> Row:
    """One line; `stages` are those that a token without a stage may mean."""
    row = Row(number)
    stage = stages[0] if len(stages) == 1 else None
    for cell, word in enumerate(_WORD.finditer(line)):
        token, column = word[0], word.start() + 1
        if token == ".":
            continue
        match = TOKEN.fullmatch(token)
        if match and stage is None and (match[1] is None or (match[5] is not None and match[4] is None)):
            owned = ", ".join(map(str, stages))
            message = f"{token}: device {device} has the stages {owned}, so each token must name its own"
            drawing.report.error("which-stage", message, device=device, line=number, column=column)
            continue
        step = _step(match, stage, full_backwards) if match else None
        if step is None:
            drawing.bad_token(token, _explain, number, column, device)
        else:
            row.add(step, column, cell)
    return row


def _stated_stages(drawing: Drawing, devices: int) -> tuple[tuple[int, ...], ...]:
    """The stages that the stated placement gives each device; nothing where none is stated, or it makes no sense."""
    if drawing.placement is None or not devices:
        return ()
    try:
        return placed(drawing.placement, devices, devices).copies
    except InputError:
        return ()  # the reader reports it


def _step(match: re.Match[str], default: int | None, full_backwards: bool) -> Step | None:
    stage, kind, microbatch, stage2, kind2, microbatch2 = match.groups()
    if full_backwards:
        kind, kind2 = (letter.replace("B", "BW") if letter else None for letter in (kind, kind2))
    operation = Operation(kind, int(stage or default or 0), int(microbatch))
    if kind2 is None:
        return operation
    return make_pair(operation, Operation(kind2, int(stage2 or default or 0), int(microbatch2)))


def _explain(token: str) -> str:
    """What is wrong with a token, and how to mend it."""
    if TOKEN.fullmatch(token):
        return f"{shown(token)}: a pair is a forward, then a backward, as in 2F3+2BW1"
    if start := TOKEN.match(token):
        rest = token[start.end() :]
        if rest[0] in ",;|":
            return f"{shown(token)}: tokens are separated by blanks, not by {rest[0]!r}"
        return f"{shown(token)}: {shown(rest)} does not belong after {start[0]}"
    if re.fullmatch(r"\d*I\d+", token):
        return f"{shown(token)}: the text form writes an input gradient as B (hint: {token.replace('I', 'B')})"
    if re.fullmatch(r"\d*(?:SEND|RECV)_[FB]\d+|\d*(?:UNSHARD|RESHARD|REDUCE_GRAD)", token):
        return f"{shown(token)}: the text form has no communication (hint: torch's CSV has, with commas)"
    if set(token) <= set(".-_"):
        return f"{shown(token)}: an idle cell is a single dot"
    if token.startswith("#"):
        return f"{shown(token)}: a comment stands on a line of its own"
    if token.upper() != token and TOKEN.fullmatch(token.upper()):
        return f"{shown(token)}: letters are capitals (hint: {token.upper()})"
    return f"{shown(token)} is not an operation such as F0, 2B0, 2W0, 2BW0 or the pair 2F3+2BW1"


def write(schedule: Schedule, problem: Problem) -> str:
    """The text form of a schedule: with its placement, micro-batches and recomputation, every stage written out."""
    placement = problem.placement
    name = ",".join(map(str, placement.down)) if not placement.bidirectional else placement.kind
    head = [f"# placement: {name}", f"# microbatches: {problem.microbatches}"]
    if problem.recompute != "none":
        head.append(f"# recompute: {problem.recompute}")
    return "\n".join([*head, *(" ".join(map(str, order)) for order in schedule.orders)]) + "\n"
