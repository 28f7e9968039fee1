"""`debubble show` and `debubble export`: pictures of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debubble import Plan

HANG = "F0 BW0 F1 BW1\nF0 F1 BW1 BW0\n"


@pytest.mark.parametrize("width", [80, 200])
def test_a_plan_fits_the_terminal(debubble: Any, plan: str, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The drawing is as wide as the terminal, and no wider."""
    monkeypatch.setenv("COLUMNS", str(width))
    result = debubble("show", plan)
    assert result.status == 0
    assert max(map(len, result.out.splitlines())) <= width
    assert max(map(len, result.out.splitlines())) > width - 30


def test_output_to_a_file_has_no_escape_codes(debubble: Any, plan: str) -> None:
    """Colours are for terminals."""
    assert "\x1b" not in debubble("show", plan).out


def test_a_text_schedule_is_shown(debubble: Any, tmp_path: Path) -> None:
    """A hand-written schedule needs no plan to be looked at."""
    file = tmp_path / "hand.txt"
    file.write_text("F0 F1 BW0 BW1\nF0 BW0 F1 BW1\n")
    result = debubble("show", file)
    assert result.status == 0
    assert "BW0" in result.out


def test_a_deadlock_cannot_be_drawn(debubble: Any, tmp_path: Path) -> None:
    """The error is said on standard error, the status is 1, and nothing is drawn."""
    file = tmp_path / "hang.txt"
    file.write_text(HANG)
    result = debubble("show", file)
    assert result.status == 1
    assert result.out == ""
    assert "deadlock" in result.err


def test_export_to_standard_output(debubble: Any, plan: str) -> None:
    """Without -o the text goes to standard output, and nothing else does."""
    result = debubble("export", plan, "--format", "torch-csv")
    assert result.status == 0
    assert result.out.startswith("0F0,0F1,0F2,0F3,0I0,0W0,")


def test_export_to_a_file(debubble: Any, plan: str, tmp_path: Path) -> None:
    """With -o it goes to the file."""
    path = tmp_path / "schedule.txt"
    result = debubble("export", plan, "--format", "text", "-o", path)
    assert (result.status, result.out) == (0, "")
    assert "F0" in path.read_text()


def test_an_exported_text_comes_back(debubble: Any, plan: str, tmp_path: Path) -> None:
    """Export, lower, and the same orders are there."""
    text, again = tmp_path / "schedule.txt", tmp_path / "again.json"
    debubble("export", plan, "--format", "text", "-o", text)
    assert debubble("lower", text, "-o", again).status == 0
    assert Plan.load(again).schedule.orders == Plan.load(plan).schedule.orders


@pytest.mark.parametrize(("format", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_export_of_figures(debubble: Any, plan: str, tmp_path: Path, format: str, start: bytes) -> None:
    """Both kinds of figure are written."""
    path = tmp_path / f"picture.{format}"
    assert debubble("export", plan, "--format", format, "-o", path).status == 0
    assert path.read_bytes().startswith(start)


def test_an_unknown_format_is_refused(debubble: Any, plan: str) -> None:
    """The message lists the formats."""
    result = debubble("export", plan, "--format", "gif")
    assert result.status == 2
    assert "svg" in result.err


def test_a_damaged_plan_is_not_exported(debubble: Any, plan: str) -> None:
    """A plan is proved again before anything is made of it."""
    file = Path(plan)
    file.write_text(file.read_text().replace('"1f1b"', '"x"').replace("0F1 0F2", "0F2 0F1"))
    result = debubble("export", plan, "--format", "svg")
    assert (result.status, result.out) == (1, "")


def test_a_notebook_shows_the_timeline(plan: str) -> None:
    """The summary and the coloured timeline, as escaped HTML."""
    html = Plan.load(plan)._repr_html_()
    assert html.startswith("<pre")
    assert "makespan" in html
    assert "#0072b2" in html


def test_export_of_a_page_and_of_a_comparison(debubble: Any, plan: str, tmp_path: Path) -> None:
    """One plan gives one canvas's data, a second one is put beside it."""
    alone, both = tmp_path / "alone.html", tmp_path / "both.html"
    assert debubble("export", plan, "--format", "html", "-o", alone).status == 0
    assert debubble("export", plan, "--format", "html", "--against", plan, "-o", both).status == 0
    assert alone.read_text().startswith("<!DOCTYPE html>")
    assert "<title>zb-h1 against zb-h1 - debubble</title>" in both.read_text()


def test_only_a_page_compares(debubble: Any, plan: str) -> None:
    """Other formats hold one plan."""
    result = debubble("export", plan, "--format", "text", "--against", plan)
    assert result.status == 2
    assert "--against compares two plans in html, not in text" in result.err


def test_export_of_a_trace(debubble: Any, plan: str, tmp_path: Path) -> None:
    """A Perfetto trace is a row of packets, each a field 1 of bytes."""
    path = tmp_path / "plan.pftrace"
    assert debubble("export", plan, "--format", "perfetto", "-o", path).status == 0
    assert path.read_bytes().startswith(b"\x0a")
