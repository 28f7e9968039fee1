"""docs/diagnostics.md: every code is explained, and every example gives the code it stands under."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from debubble.compiler.interchange import verify_file

ROOT = Path(__file__).parents[3]
SECTIONS = re.split(r"(?m)^### ", (ROOT / "docs" / "diagnostics.md").read_text())[1:]
EXAMPLES = {section.splitlines()[0]: section for section in SECTIONS if "```text" in section}
OPTIONS: dict[str, Any] = {"--microbatches": int, "--memory-cap": float, "--placement": str, "--dialect": str}


def options(section: str) -> dict[str, Any]:
    found = re.search(r"(?m)^Options: `(.*)`$", section)
    words = found[1].split() if found else []
    if words == ["--forward-only"]:
        return {"forward_only": True}
    return {
        name[2:].replace("-", "_"): OPTIONS[name](value) for name, value in zip(words[::2], words[1::2], strict=True)
    }


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_example_gives_the_code(title: str, tmp_path: Path) -> None:
    """The file under a heading is reported with (one of) the codes of the heading."""
    path = tmp_path / "schedule"
    path.write_text(re.findall(r"```text\n(.*?)```", EXAMPLES[title], re.DOTALL)[0])
    report = verify_file(path, **options(EXAMPLES[title])).report
    found = {diagnostic.code for diagnostic in [*report.errors, *report.warnings]}
    assert found & set(title.split(", ")), found


def test_every_code_is_explained() -> None:
    """Every code that reading and verification report stands in the documentation."""
    page = (ROOT / "docs" / "diagnostics.md").read_text()
    calls = re.compile(
        r"(?:report|findings)\.(?:error|warning|report)\(|table\.report\(\s*report,|warn\(|_error\(|say\("
    )
    reported = set()
    for file in (ROOT / "compiler").rglob("*.py"):
        content = file.read_text()
        for call in calls.finditer(content):
            code = re.match(r"\s*\"([a-z]+(?:-[a-z]+)*)\"", content[call.end() :])
            reported.update(code.groups() if code else ())
    assert len(reported) > 40
    assert [code for code in sorted(reported) if not re.search(rf"(?m)^### .*\b{code}\b|^\| {code} \|", page)] == []
