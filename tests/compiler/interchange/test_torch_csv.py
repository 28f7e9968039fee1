"""torch's CSV: letters old and new, strict cells, and what is said of slips."""

from __future__ import annotations

import pytest

from debubble.compiler.interchange import torch_csv


def orders(content: str, dialect: str = "torch") -> list[str]:
    drawing = torch_csv.read(content, dialect)
    assert drawing.report.valid, drawing.report.errors
    return [" ".join(map(str, row.items)) for row in drawing.rows]


def test_letters() -> None:
    """I is the input gradient and B the full backward."""
    assert orders("0F0,0I0,0W0,0F1,0B1") == ["0F0 0B0 0W0 0F1 0BW1"]


def test_legacy_letters() -> None:
    """B was the input gradient and BW the full backward."""
    assert orders("0F0,0B0,0W0,0F1,0BW1", "torch-legacy") == ["0F0 0B0 0W0 0F1 0BW1"]


def test_legacy_forward_and_backward_alone() -> None:
    """Without any W, B is a full backward in the old letters too."""
    assert orders("0F0,0B0", "torch-legacy") == ["0F0 0BW0"]


def test_overlap_and_communication() -> None:
    """Pairs, sends, receives and actions on whole stages."""
    content = "0UNSHARD,0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0RECV_B1,0REDUCE_GRAD,0RESHARD"
    assert orders(content) == ["0UNSHARD 0F0 0SEND_F0 0F1+0BW0 0RECV_B1 0REDUCE_GRAD 0RESHARD"]


def test_the_choice_of_letters_is_said() -> None:
    """W without I can only be the old letters; that is a warning. F and B alone, or I, are no choice."""
    dialect, report = torch_csv.letters("0F0,0B0,0W0")
    assert dialect == "torch-legacy"
    assert [warning.code for warning in report.warnings] == ["dialect"]
    for content in ("0F0,0B0", "0F0,0I0,0W0"):
        dialect, report = torch_csv.letters(content)
        assert (dialect, report.warnings) == ("torch", [])


def test_cells_are_counted_with_the_idle_ones() -> None:
    """Idle cells move what follows, and make the drawn length."""
    drawing = torch_csv.read(",,0F0,,0B0,\n1F0,\n", "torch")
    assert drawing.drawn_makespan == 5
    assert (drawing.rows[0].first_cell, drawing.rows[0].end_cell) == (2, 5)


def test_no_idle_cells_no_drawn_length() -> None:
    """A file without idle cells draws nothing."""
    assert torch_csv.read("0F0,0B0,\n", "torch").drawn_makespan is None


def test_blank_lines_inside_are_ranks() -> None:
    """A blank line between others is a rank without work, as torch reads it; at the end it is nothing."""
    assert orders("0F0\n\n1F0\n\n") == ["0F0", "", "1F0"]


@pytest.mark.parametrize(
    ("content", "line", "column", "words"),
    [
        ("0F0,1F3oops", 1, 5, "'oops' does not belong after 1F3"),
        ("0F0\n0BW3", 2, 1, "torch writes a full backward as B"),
        ("0F0;0F1", 1, 1, "separated by commas"),
        ("0F0, 0F1 0F2", 1, 6, "separated by commas"),
        ("0F", 1, 1, "the micro-batch is missing"),
        ("0F0,0SEND_F", 1, 5, "the micro-batch is missing"),
        ("0UNSHARD3", 1, 1, "'3' does not belong after 0UNSHARD"),
        ("F0", 1, 1, "name the stage"),
        ("F0_s0", 1, 1, "printed table"),
        ("0f0", 1, 1, "hint: 0F0"),
        ("# note", 1, 1, "no comments"),
        ("(0F1;0F2)OVERLAP_F_B", 1, 1, "a forward with a backward"),
        ("-1F0", 1, 1, "not an action"),
    ],
)
def test_slips(content: str, line: int, column: int, words: str) -> None:
    """Each slip has its place and a way to mend it."""
    (error,) = torch_csv.read(content, "torch").report.errors
    assert (error.code, error.line, error.column) == ("bad-token", line, column)
    assert words in error.message


def test_new_letters_in_an_old_file() -> None:
    """I in a file that is said to be old is refused with the dialect to use."""
    (error,) = torch_csv.read("0F0,0I0,0W0", "torch-legacy").report.errors
    assert "--dialect torch" in error.message
