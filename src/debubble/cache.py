"""The cache: plans as files of one directory, found by the problem they solve."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import msgspec

from .compiler.errors import InputError
from .compiler.plan import Plan, read
from .compiler.problem import Problem


def digest(problem: Problem) -> str:
    """SHA-256 over everything that a problem consists of."""
    parts = {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Cache:
    """Plans in a directory, which is made where it is missing. Raises InputError when it cannot be."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._made = not self.directory.exists()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the directory: {error.strerror}", code="unwritable", source=os.fspath(directory)
            ) from None

    def path(self, problem: Problem) -> Path:
        return self.directory / f"{digest(problem)[:16]}.json"

    def load(self, problem: Problem) -> Plan | None:
        """The plan of a problem, proved again with its bound; None when there is none, or it is not what it says."""
        path = self.path(problem)
        if not path.exists():
            return None
        try:
            plan, report, _ = read(path)
        except InputError:
            return None
        return plan if report.valid and plan.problem == problem else None

    def leave(self) -> None:
        """Remove the directory where it was made for nothing."""
        if self._made and not any(self.directory.iterdir()):
            self.directory.rmdir()

    def save(self, plan: Plan) -> str:
        """Write a plan, and say where."""
        path = self.path(plan.problem)
        plan.save(path)
        return os.fspath(path)
