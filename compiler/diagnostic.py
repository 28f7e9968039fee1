"""Diagnostics: what verification has to say, each with a stable code and a place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

MAX_OF_A_KIND = 10
"""How many diagnostics of one code a report lists; the rest are counted."""


@dataclass(frozen=True)
class Diagnostic:
    """One finding: `code` is stable, `line` and `column` (from 1) point into the file that was read."""

    code: str
    message: str
    device: int | None = None
    operation: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = [] if self.device is None else [f"device {self.device}"]
        if self.line is not None:
            place.append(f"line {self.line}" + ("" if self.column is None else f", column {self.column}"))
        return f"[{self.code}] {', '.join(place)}{': ' if place else ''}{self.message}"

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass
class Report:
    """Everything verification found: the schedule is valid when there are no errors."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        return not self.errors

    def error(self, code: str, message: str, *, device: int | None = None, operation: object = None) -> None:
        self.errors.append(Diagnostic(code, message, device, None if operation is None else str(operation)))

    def has(self, *codes: str) -> bool:
        return any(diagnostic.code in codes for diagnostic in self.errors)

    def shortened(self) -> Report:
        """The first diagnostics of each code, the last of them with a count of the rest."""
        return Report(_shortened(self.errors), _shortened(self.warnings))


def _shortened(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    of_a_kind: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        of_a_kind.setdefault(diagnostic.code, []).append(diagnostic)
    kept: list[Diagnostic] = []
    for found in of_a_kind.values():
        head, rest = found[:MAX_OF_A_KIND], len(found) - MAX_OF_A_KIND
        if rest > 0:
            head[-1] = replace(head[-1], message=f"{head[-1].message} (and {rest} more of this kind)")
        kept.extend(head)
    return kept
