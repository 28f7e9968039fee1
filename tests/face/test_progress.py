"""The live line of a search."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from debubble.progress import Line

COSTS = ("--devices", "2", "--forward", "1", "--backward-input", "1", "--backward-weight", "1")


def _on_a_terminal(*words: str) -> tuple[str, str]:
    """Standard output, and what a terminal on standard error got."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "debubble", *words]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # the terminal is empty and has no writer left
        pass
    os.close(ours)
    return finished.stdout.decode(), seen.decode()


def test_a_terminal_sees_the_search() -> None:
    """On a terminal the line is there, and standard output has the result alone."""
    out, err = _on_a_terminal("compile", *COSTS, "-m", "4", "--time-limit", "2")
    assert "searching" in err
    assert "searching" not in out
    assert "makespan" in out


def test_the_line_tells_best_bound_and_gap() -> None:
    """What the search reported last is what is shown."""
    line = Line(30, "ms")
    line.report(1.0, 110.0, 100.0)
    text = str(line.__rich__())
    assert "at most 30 s" in text
    assert "best 110 ms, bound 100 ms, gap 10.00%" in text


def test_the_line_before_anything_is_found() -> None:
    """Neither best nor bound nor gap are made up."""
    assert "best" not in Line(30, "").__rich__()
