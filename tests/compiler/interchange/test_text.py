"""The text form: tokens, stages left out, statements, and what is said of slips."""

from __future__ import annotations

import pytest

from debubble.compiler import placement
from debubble.compiler.interchange import text
from debubble.compiler.operation import parse_step
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.schedule import Schedule


def orders(content: str) -> list[str]:
    drawing = text.read(content)
    assert drawing.report.valid, drawing.report.errors
    return [" ".join(map(str, row.items)) for row in drawing.rows]


def complaint(content: str) -> tuple[str, int | None, int | None, str]:
    (error,) = text.read(content).report.errors
    return error.code, error.line, error.column, error.message


def test_tokens() -> None:
    """Stages, kinds, pairs and idle cells."""
    assert orders("2F0 . 2F3+2BW1 2B0\t2W0") == ["2F0 2F3+2BW1 2B0 2W0"]


def test_stage_follows_the_other_tokens_of_the_device() -> None:
    """A stage left out is the only one that the line names."""
    assert orders("3F0 BW0\nF0 BW0") == ["3F0 3BW0", "1F0 1BW0"]


def test_stage_follows_the_stated_placement() -> None:
    """Without any stage in a line, the placement says which one the device owns."""
    assert orders("# placement: 1,0\nF0 BW0\nF0 BW0") == ["1F0 1BW0", "0F0 0BW0"]


def test_full_backwards() -> None:
    """F and B alone are full backwards, which is said."""
    drawing = text.read("F0 B0")
    assert orders("F0 B0") == ["0F0 0BW0"]
    assert [warning.code for warning in drawing.report.warnings] == ["full-backwards"]


def test_statements() -> None:
    """Comments state the placement and the micro-batches; other comments say nothing."""
    drawing = text.read("# anything: at all\n#Placement : v\n  # microbatches: 3\nF0")
    assert (drawing.placement, drawing.microbatches) == ("v", 3)


@pytest.mark.parametrize(
    ("content", "code", "line", "column", "words"),
    [
        ("F0 1F3oops", "bad-token", 1, 4, "'oops' does not belong after 1F3"),
        ("F0\nF0, F1", "bad-token", 2, 1, "separated by blanks"),
        ("F0 I0", "bad-token", 1, 4, "hint: B0"),
        ("F0 f1", "bad-token", 1, 4, "hint: F1"),
        ("F0 ..", "bad-token", 1, 4, "single dot"),
        ("F0 SEND_F0", "bad-token", 1, 4, "no communication"),
        ("F0 BW0+F1", "bad-token", 1, 4, "a forward, then a backward"),
        ("F0 # note", "bad-token", 1, 4, "a line of its own"),
        ("F0 1234567890F0", "bad-token", 1, 4, "the number is too large"),
        ("0F0 1F0 F1", "which-stage", 1, 9, "stages 0, 1"),
        ("# microbatches: many\nF0", "bad-comment", 1, 17, "'many' is not a number"),
    ],
)
def test_slips(content: str, code: str, line: int, column: int, words: str) -> None:
    """Each slip has its place and a way to mend it."""
    found = complaint(content.replace("# note", "#")) if "note" in content else complaint(content)
    assert found[:3] == (code, line, column)
    assert words in found[3]


def test_what_is_written_reads_back() -> None:
    """Writing and reading give the same orders, placement and micro-batches."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    schedule = Schedule.of([map(parse_step, ("0F0", "3F0", "0F1+3BW0")), map(parse_step, ("1F0", "2F0", "2B0", "2W0"))])
    drawing = text.read(text.write(schedule, Problem(profile, placement.v(2), 2)))
    assert [tuple(row.items) for row in drawing.rows] == list(schedule.orders)
    assert (drawing.placement, drawing.microbatches) == ("0,1,1,0", 2)


@pytest.mark.parametrize("recompute", ["none", "all", 2])
def test_recomputation_is_written_and_read(recompute: str | int) -> None:
    """What an exported file says of recomputation is what the plan had."""
    where = placement.linear(3)
    profile = Profile.uniform(stages=3, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, where, 4, recompute=recompute)
    assert text.read(text.write(Schedule.of([[]] * 3), problem)).recompute == recompute
