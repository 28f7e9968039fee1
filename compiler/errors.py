"""The errors that debubble raises on purpose, drawn once:

DebubbleError
 ├─ InputError             the request or a file could not be understood   (exit status 2)
 ├─ InfeasibleError        no schedule satisfies the problem               (exit status 1)
 ├─ InvalidScheduleError   a schedule or plan breaks a rule                (exit status 1)
 ├─ CertificateError       a certificate does not prove what it claims     (exit status 1)
 └─ RunError               an execution on processes failed                (exit status 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnostic import Report


class DebubbleError(Exception):
    """Base of every error that debubble raises on purpose."""

    code = "error"
    exit_status = 1


class InputError(DebubbleError):
    """The request or a file could not be understood.

    `source` is the file, `line` and `column` (from 1) the place in it, `hint` a way to mend it.
    """

    exit_status = 2

    def __init__(
        self,
        message: str,
        *,
        code: str = "bad-input",
        source: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code = message, code
        self.source, self.line, self.column, self.hint = source, line, column, hint

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} (hint: {self.hint})" if self.hint else text


class InfeasibleError(DebubbleError):
    """No schedule satisfies the problem; `least_cap` is the smallest cap per device that would do."""

    code = "infeasible"

    def __init__(self, reason: str, *, least_cap: list[float] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.least_cap = reason, least_cap


class InvalidScheduleError(DebubbleError):
    """A schedule or plan breaks a rule; `report` holds every diagnostic."""

    code = "invalid-schedule"

    def __init__(self, report: Report) -> None:
        first = report.errors[0]
        more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
        super().__init__(f"{first}{more}")
        self.report = report


class CertificateError(DebubbleError):
    """A certificate does not prove what it claims."""

    code = "bad-certificate"


class RunError(DebubbleError):
    """An execution on processes failed."""

    code = "run-failed"
