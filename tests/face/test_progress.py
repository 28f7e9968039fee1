"""The live line of a search and of tuning."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from debubble.progress import Line, search_words, tuning_words
from debubble.tuning import Status

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


def test_a_terminal_sees_tuning() -> None:
    """On a terminal the line is there, and standard output has the result alone."""
    out, err = _on_a_terminal("tune", *COSTS, "-m", "4", "--time-limit", "1", "--jobs", "1")
    assert "tuning" in err
    assert "tuning" not in out
    assert "Take" in out


def test_the_line_tells_what_was_reported() -> None:
    """Elapsed time and limit, then the words."""
    line = Line("searching", 30)
    line.words = ["best 110 ms"]
    assert line.__rich__() == "searching 0.0 s (at most 30 s), best 110 ms"


def test_a_search_tells_best_bound_and_gap() -> None:
    """In the profile's unit."""
    assert search_words(110.0, 100.0, "ms") == ["best 110 ms", "bound 100 ms", "gap 10.00%"]


def test_a_search_tells_nothing_before_it_has_found_it() -> None:
    """Neither best nor bound nor gap are made up."""
    assert search_words(None, None, "") == []


def test_tuning_tells_searches_and_front() -> None:
    """How far it is, and what it has."""
    status = Status(round=2, searches=3, planned=12, dropped=6, front=4, proved=1)
    words = ["round 2", "search 3 of 12", "6 dropped by their bounds", "4 plans on the front, 1 proved"]
    assert tuning_words(status) == words
