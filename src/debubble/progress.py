"""Progress of a search, on standard error, while somebody is looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[float, float | None, float | None], None]


@contextmanager
def search_progress(time_limit: float, time_unit: str = "") -> Iterator[Report | None]:
    """A live line with elapsed time, best value, bound and gap; gives None, and writes nothing, when standard error
    is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    line = Line(time_limit, time_unit)
    with Live(line, console=Console(stderr=True), transient=True, refresh_per_second=5):
        yield line.report


class Line:
    """What the search has reported last, as text."""

    def __init__(self, time_limit: float, time_unit: str) -> None:
        self._start = time.monotonic()
        self._limit = time_limit
        self._unit = f" {time_unit}" if time_unit else ""
        self._best: float | None = None
        self._bound: float | None = None

    def report(self, elapsed: float, best: float | None, bound: float | None) -> None:
        self._best, self._bound = best, bound

    def __rich__(self) -> str:
        words = [f"searching {time.monotonic() - self._start:.1f} s (at most {self._limit:g} s)"]
        if self._best is not None:
            words.append(f"best {self._best:g}{self._unit}")
        if self._bound is not None:
            words.append(f"bound {self._bound:g}{self._unit}")
        if self._best is not None and self._bound:
            words.append(f"gap {max(0.0, self._best / self._bound - 1):.2%}")
        return ", ".join(words)
