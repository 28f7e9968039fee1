"""The command line as tests call it: in this process, with what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from debubble.cli import main


@dataclass
class Result:
    """Exit status, standard output and standard error of one call."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        return json.loads(self.out)


@pytest.fixture
def debubble(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    """Call the command line with these words."""

    def call(*words: object) -> Result:
        capfdbinary.readouterr()
        status = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Result(status, out.decode(), err.decode())

    return call


COSTS = (
    "--devices",
    4,
    "--forward",
    10,
    "--backward-input",
    11,
    "--backward-weight",
    8,
    "--comm",
    1,
    "--time-limit",
    1,
)


@pytest.fixture
def plan(debubble: Callable[..., Result], tmp_path: Any) -> str:
    """The path of a saved ZB-H1 plan of four devices and eight micro-batches."""
    path = str(tmp_path / "plan.json")
    assert debubble("compile", *COSTS, "-m", 8, "--schedule", "zb-h1", "-o", path).status == 0
    return path
