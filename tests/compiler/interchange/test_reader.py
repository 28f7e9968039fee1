"""Reading schedules from files: dialects, places, inference."""

from __future__ import annotations

from pathlib import Path

import pytest

from debubble.compiler.errors import InputError
from debubble.compiler.interchange import ReadSchedule, read_schedule, verify_file


def read(folder: Path, content: str, **options: object) -> ReadSchedule:
    path = folder / "schedule"
    path.write_bytes(content.encode())
    return read_schedule(path, **options)  # type: ignore[arg-type]


def orders(schedule: ReadSchedule) -> list[str]:
    return [" ".join(map(str, order)) for order in schedule.schedule.orders]


def test_text_without_stage_numbers(tmp_path: Path) -> None:
    """Where a device owns one stage, its number may be left out."""
    found = read(tmp_path, "F0 BW0\n. F0 BW0\n")
    assert orders(found) == ["0F0 0BW0", "1F0 1BW0"]
    assert (found.dialect, found.stages, found.microbatches) == ("text", 2, 1)


def test_torch_letters(tmp_path: Path) -> None:
    """With an I in the file, B is the full backward."""
    found = read(tmp_path, "0F0,0F1,0I0,0W0,0B1\n")
    assert orders(found) == ["0F0 0F1 0B0 0W0 0BW1"]


def test_blanks_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    """Spreadsheets add blanks, CRLF, a byte order mark, empty cells and a final empty line."""
    plain = read(tmp_path, "0F0,0B0\n,1F0,1B0\n")
    dressed = read(tmp_path, "\ufeff 0F0 ,\t0B0,,\r\n, 1F0,1B0 ,\r\n\r\n")
    assert orders(plain) == orders(dressed)
    assert dressed.report.errors == dressed.report.warnings == []


def test_unknown_dialect(tmp_path: Path) -> None:
    """A dialect that does not exist is refused by name."""
    with pytest.raises(InputError, match="unknown dialect 'torhc'"):
        read(tmp_path, "0F0,0B0\n", dialect="torhc")


@pytest.mark.parametrize(
    "content", ["<svg>" + "0F0 " * 40 + "oops " * 20 + "</svg>", "a report on F0 " * 3 + "words " * 60]
)
def test_text_about_something_else_is_no_schedule(tmp_path: Path, content: str) -> None:
    """Markup, and prose that names an operation now and then, get one error."""
    with pytest.raises(InputError, match="this is no schedule"):
        read(tmp_path, content)


def test_json_is_no_schedule(tmp_path: Path) -> None:
    """A plan given for a schedule is recognised."""
    with pytest.raises(InputError, match="a plan already"):
        read(tmp_path, '{"format": "debubble.plan/1"}')


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("F1 F2 BW1 BW2\nF1 BW1 F2 BW2\n", "micro-batches are numbered from 0"),
        ("1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n", "stages are numbered from 0"),
    ],
)
def test_numbers_from_one_are_hinted_at(tmp_path: Path, content: str, hint: str) -> None:
    """What is missing then has one cause, and it is said."""
    path = tmp_path / "schedule"
    path.write_text(content)
    assert hint in verify_file(path).report.errors[0].message
