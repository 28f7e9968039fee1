"""The README: what it shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in _blocks("sh")
    for line in block.replace("\\\n", "").splitlines()
    if line.startswith("debubble ")
]
RESULT, SCHEDULE = _blocks("text")


def test_the_first_result_is_what_is_shown(debubble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command prints the lines below it."""
    monkeypatch.chdir(tmp_path)
    assert debubble(*COMMANDS[0]).out.startswith(RESULT)


def test_three_quarters_of_the_memory(debubble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cap of three, the search finds and proves 329."""
    monkeypatch.chdir(tmp_path)
    words = [*COMMANDS[0], "--memory-cap", "3", "--json"]
    found = debubble(*words).json
    assert (found["value"], found["status"]) == (329, "optimal")


def test_the_schedule_of_the_readme_is_valid(debubble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hand-written schedule is verified and lowered by the commands below it."""
    monkeypatch.chdir(tmp_path)
    Path("schedule.txt").write_text(SCHEDULE)
    for command in (words for words in COMMANDS if "schedule.txt" in words):
        assert debubble(*command).status == 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_exists(debubble: Any, words: list[str]) -> None:
    """No command or option of the README is unknown."""
    result = debubble(*words, "--help")
    assert result.status == 0


def test_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first Python block runs as it stands."""
    monkeypatch.chdir(tmp_path)
    Path("schedule.txt").write_text(SCHEDULE)
    names: dict[str, Any] = {}
    exec(_blocks("python")[0], names)
    assert names["report"].valid
    assert names["plan"].value == 283


def test_every_file_it_points_to_exists() -> None:
    """Links and pictures lead somewhere."""
    root = Path(__file__).parents[2]
    assert all((root / target).exists() for target in re.findall(r"\]\(([^)#:]+)\)", README))
