"""The pages under docs/: their commands print what is shown, their Python runs.

A block of language `console` is a session: lines after `$` are commands, the others are what they print; `...` stands
for any lines. A `text` block with a title is a file of that name. Python runs, block after block, unless its title says
that it does not.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
BLOCK = re.compile(r"(?ms)^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```")
TOLD = {name: page for name, page in PAGES.items() if "```console" in page or "```python\n" in page}
COMMANDS = [
    line
    for page in PAGES.values()
    for language, _, content in BLOCK.findall(page)
    if language == "sh"
    for line in content.replace("\\\n", "").splitlines()
    if "debubble " in line
]


def _is_shown(printed: str, shown: str) -> bool:
    """True when `shown` is what was printed, where lines of `...` stand for any lines."""
    pieces = [re.escape(piece) for piece in re.split(r"(?m)^\.\.\.\n", shown)]
    return re.fullmatch(r"(?:.*\n)?".join(pieces), printed, re.DOTALL) is not None


@pytest.mark.parametrize("name", TOLD)
def test_what_a_page_shows_is_what_happens(
    debubble: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every session prints what stands on the page, and every Python block runs."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    names: dict[str, Any] = {}
    for language, title, content in BLOCK.findall(TOLD[name]):
        if language == "text" and title:
            Path(title).write_text(content)
        elif language == "python" and not title:
            exec(content, names)
        elif language == "console":
            for session in re.split(r"(?m)^\$ ", content)[1:]:
                command, _, shown = session.partition("\n")
                result = debubble(*shlex.split(command)[1:])
                assert _is_shown(result.out + result.err, shown), f"{command}\n{result.out}{result.err}"


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists(debubble: Any, line: str) -> None:
    """No command or option in a page is unknown."""
    words = shlex.split(line[line.index("debubble ") :], comments=True)[1:]
    assert debubble(*words, "--help").status == 0
