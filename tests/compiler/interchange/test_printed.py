"""Printed tables: steps down, devices across."""

from __future__ import annotations

from debubble.compiler.interchange import printed


def orders(content: str) -> list[str]:
    drawing = printed.read(content)
    assert drawing.report.valid, drawing.report.errors
    return [" ".join(map(str, row.items)) for row in drawing.rows]


def test_table_without_header() -> None:
    """Every step has a cell for every device, None where it idles."""
    assert orders("F0_s0 None\nF1_s0 F0_s1\nNone B0_s1\n") == ["0F0 0F1", "1F0 1BW0"]


def test_table_with_header_and_blank_cells() -> None:
    """The header says which device a cell belongs to."""
    content = "        Rank 0 Rank 1\nStep 0: F0_s0\nStep 1:        F0_s1\nStep 2:        1B0    <-- ERROR HERE\n"
    assert orders(content) == ["0F0", "1F0 1BW0"]


def test_full_steps_need_no_alignment() -> None:
    """Where a step has a cell for every device, cells that drifted from the header's columns belong in their order."""
    content = (
        "         Rank 0 Rank 1 Rank 2\nStep 0: F0_s0 None None\nStep 1: None F0_s1 None\nStep 2: None None F0_s2\n"
    )
    assert orders(content) == ["0F0", "1F0", "2F0"]


def test_split_letters_of_old() -> None:
    """B beside W is the input gradient, and that is said."""
    drawing = printed.read("F0_s0\nB0_s0\nW0_s0\n")
    assert [str(item) for item in drawing.rows[0].items] == ["0F0", "0B0", "0W0"]
    assert [warning.code for warning in drawing.report.warnings] == ["dialect"]


def test_missing_cell() -> None:
    """Without a header, a step with fewer cells could mean anything."""
    (error,) = printed.read("F0_s0 None\nF1_s0\n").report.errors
    assert (error.code, error.line) == ("cell-count", 2)


def test_every_cell_has_its_place() -> None:
    """Lines and columns point into the table."""
    row = printed.read("F0_s0 None\nNone F0_s1\n").rows[1]
    assert row.at(1, 0) == {"device": 1, "line": 2, "column": 6}
