"""Certificates: a lower bound on the objective of a problem, and the witness that lets it be checked."""

from __future__ import annotations

from typing import Any

import msgspec


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """No schedule of the problem has a smaller objective than `lower_bound`.

    `name` is the kind of bound. `proof` is "checked" when code in this package recomputed it from the problem and the
    `witness`, "solver" when it rests on the word of `backend` (its name and version).
    """

    lower_bound: float
    name: str
    proof: str
    witness: dict[str, Any] = {}
    backend: str | None = None

    def gap(self, value: float) -> float:
        """(value - bound) / bound, 0 when they meet up to rounding."""
        if value <= self.lower_bound * (1 + 1e-9):
            return 0.0
        return (value - self.lower_bound) / self.lower_bound if self.lower_bound > 0 else float("inf")
