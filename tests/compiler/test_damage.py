"""Verification against an independent reference execution of randomly damaged schedules."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
from damage import Level, Orders, Streams, Torch, trials


@pytest.mark.parametrize("name", ["orders", "streams", "torch"])
def test_damages_are_judged_as_the_reference_executes_them(name: str, tmp_path: Path) -> None:
    """Whatever changes the outcome is rejected; a reorder that changes nothing is not."""
    level: Level = {"orders": Orders(), "streams": Streams(), "torch": Torch(tmp_path)}[name]
    wrong = [verdict for verdict in islice(trials(random.Random(name), [level]), 400) if verdict.wrong]
    assert wrong == []
