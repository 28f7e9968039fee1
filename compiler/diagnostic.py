"""Diagnostics: what verification has to say, each with a stable code and a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

MAX_OF_A_KIND = 10
"""How many diagnostics of one code a report keeps; the rest are counted."""


@dataclass(frozen=True)
class Diagnostic:
    """One finding: `code` is stable, `line` and `column` (from 1) point into the file that was read.

    `index` is the position in the order or stream of `device`, for those who can turn it into a line and a column.
    """

    code: str
    message: str
    device: int | None = None
    operation: str | None = None
    line: int | None = None
    column: int | None = None
    index: int | None = None

    def __str__(self) -> str:
        place = [] if self.device is None else [f"device {self.device}"]
        if self.line is not None:
            place.append(f"line {self.line}" + ("" if self.column is None else f", column {self.column}"))
        return f"[{self.code}] {', '.join(place)}{': ' if place else ''}{self.message}"

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None and key != "index"}


@dataclass
class Report:
    """Everything verification found: the schedule is valid when there are no errors.

    Of each code the first `MAX_OF_A_KIND` diagnostics are kept and the others counted, so that a report stays small
    whatever it is about.
    """

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """How often each code was reported."""

    @property
    def valid(self) -> bool:
        return not self.errors

    def error(self, code: str, message: str, *, operation: object = None, **place: int | None) -> None:
        """Report an error; `place` is device, index, line and column as far as they are known."""
        self._add(self.errors, code, message, operation, place)

    def warning(self, code: str, message: str, *, operation: object = None, **place: int | None) -> None:
        """Report a warning, as `error` does."""
        self._add(self.warnings, code, message, operation, place)

    def _add(
        self, kept: list[Diagnostic], code: str, message: str, operation: object, place: dict[str, int | None]
    ) -> None:
        self.counts[code] += 1
        if self.counts[code] <= MAX_OF_A_KIND:
            kept.append(Diagnostic(code, message, operation=None if operation is None else str(operation), **place))

    def count(self, code: str, more: int) -> None:
        """Count `more` diagnostics of a code beyond those reported one by one."""
        if more:
            self.counts[code] += more

    def has(self, *codes: str) -> bool:
        return any(diagnostic.code in codes for diagnostic in self.errors)

    def merge(self, other: Report) -> None:
        """Take over everything another report found."""
        self.errors.extend(other.errors)
        self.warnings.extend(other.warnings)
        self.counts.update(other.counts)

    def shortened(self) -> Report:
        """The first diagnostics of each code, kind by kind, the last of them with a count of the rest."""
        return Report(self._shortened(self.errors), self._shortened(self.warnings), self.counts)

    def _shortened(self, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
        of_a_kind: dict[str, list[Diagnostic]] = {}
        for diagnostic in diagnostics:
            of_a_kind.setdefault(diagnostic.code, []).append(diagnostic)
        kept: list[Diagnostic] = []
        for code, found in of_a_kind.items():
            head = found[:MAX_OF_A_KIND]
            rest = max(self.counts[code], len(found)) - len(head)
            if rest > 0:
                head[-1] = replace(head[-1], message=f"{head[-1].message} (and {rest} more of this kind)")
            kept.extend(head)
        return kept
