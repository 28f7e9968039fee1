"""Progress of a search or of tuning, on standard error, while somebody is looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tuning import Status

Report = Callable[[float, float | None, float | None], None]


@contextmanager
def search_progress(time_limit: float, time_unit: str = "") -> Iterator[Report | None]:
    """A live line with elapsed time, best value, bound and gap; gives None, and writes nothing, when standard error
    is not a terminal."""
    line = Line("searching", time_limit)

    def report(elapsed: float, best: float | None, bound: float | None) -> None:
        line.words = search_words(best, bound, time_unit)

    with _shown(line) as seen:
        yield report if seen else None


@contextmanager
def tuning_progress(time_limit: float) -> Iterator[Callable[[Status], None] | None]:
    """A live line with elapsed time, searches and front; gives None, and writes nothing, as `search_progress` does."""
    line = Line("tuning", time_limit)

    def report(status: Status) -> None:
        line.words = tuning_words(status)

    with _shown(line) as seen:
        yield report if seen else None


class Line:
    """What is being done, for how long already, and the `words` that were reported last."""

    def __init__(self, doing: str, time_limit: float) -> None:
        self._doing, self._limit = doing, time_limit
        self._start = time.monotonic()
        self.words: list[str] = []

    def __rich__(self) -> str:
        elapsed = time.monotonic() - self._start
        return ", ".join([f"{self._doing} {elapsed:.1f} s (at most {self._limit:g} s)", *self.words])


@contextmanager
def _shown(line: Line) -> Iterator[bool]:
    """Draw the line anew all the time, where standard error is a terminal; False where it is not."""
    if not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.live import Live

    with Live(line, console=Console(stderr=True), transient=True, refresh_per_second=5):
        yield True


def search_words(best: float | None, bound: float | None, time_unit: str) -> list[str]:
    """What a search has found, as far as it has."""
    unit = f" {time_unit}" if time_unit else ""
    words = []
    if best is not None:
        words.append(f"best {best:g}{unit}")
    if bound is not None:
        words.append(f"bound {bound:g}{unit}")
    if best is not None and bound:
        words.append(f"gap {max(0.0, best / bound - 1):.2%}")
    return words


def tuning_words(status: Status) -> list[str]:
    """How far tuning is."""
    return [
        f"round {status.round}",
        f"search {status.searches} of {status.planned}",
        f"{status.dropped} dropped by their bounds",
        f"{status.front} plans on the front, {status.proved} proved",
    ]
