"""Numbers that a caller gives: refused by name where they are not what they must be."""

from __future__ import annotations

import numbers

from .errors import InputError


def check_count(what: str, value: object, *, most: int | None = None) -> None:
    """Raise InputError unless the number of `what` is a whole one of at least 1, and of at most `most`."""
    if not isinstance(value, numbers.Integral) or int(value) < 1 or (most is not None and int(value) > most):
        least = "at least 1" if most is None else f"between 1 and {most}"
        shown = value if isinstance(value, numbers.Real) else repr(value)
        whole = "" if isinstance(value, numbers.Integral) else "a whole number, "
        raise InputError(f"the number of {what} must be {whole}{least}, not {shown}", code="bad-number")


def check_real(what: str, value: object) -> None:
    """Raise InputError for anything that is no number."""
    if not isinstance(value, numbers.Real):
        raise InputError(f"{what}: must be a number, not {value!r}", code="bad-number")
