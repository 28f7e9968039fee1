"""`debubble run`: what it prints, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

MODEL = """
import torch
from debubble.runtime import Workload

def workload():
    return Workload(
        stage=lambda index, count: torch.nn.Linear(4, 4),
        batch=lambda step, microbatches: (torch.randn(2 * microbatches, 4), torch.randn(2 * microbatches, 4)),
        loss=torch.nn.functional.mse_loss,
    )
"""
COSTS = ("--devices", 2, "--forward", 1, "--backward-input", 1, "--backward-weight", 1, "--time-limit", 0.2)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The path of a model of one linear layer per stage."""
    pytest.importorskip("torch")
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return str(file)


@pytest.fixture
def small(debubble: Any, tmp_path: Path) -> str:
    """A plan for two processes."""
    path = str(tmp_path / "small.json")
    assert debubble("compile", *COSTS, "-m", 3, "--schedule", "zb-h1", "-o", path).status == 0
    return path


def test_a_checked_run_as_json(debubble: Any, small: str, model: str) -> None:
    """One loss and one time a step, the error of the gradients, and the peak of each device."""
    result = debubble("run", small, "--model", f"{model}:workload", "--steps", 2, "--check", "--json")
    assert result.status == 0
    found = result.json
    assert found["ok"] is True
    assert len(found["losses"]) == len(found["step_seconds"]) == 2
    assert found["gradient_error"] <= 1e-5
    assert len(found["peak_memory"]) == 2
    assert found["predicted_step"] > 0


def test_a_run_as_text(debubble: Any, small: str, model: str) -> None:
    """A line a step, and the verdict of the check."""
    result = debubble("run", small, "--model", f"{model}:workload", "--check")
    assert result.status == 0
    assert "losses and gradients agree" in result.out
    assert "of its time units a step" in result.out
    assert "MiB by device, beside weights" in result.out
    assert [line.split()[0] for line in result.out.splitlines()[:2]] == ["step", "0"]


def test_an_unknown_function_is_refused(debubble: Any, small: str, model: str) -> None:
    """Status 2, the function's name, and an object that says it is not ok."""
    result = debubble("run", small, "--model", f"{model}:nothing", "--json")
    assert result.status == 2
    assert result.json["ok"] is False
    assert "nothing" in result.json["errors"][0]["message"]


def test_no_steps_are_refused(debubble: Any, small: str, model: str) -> None:
    """A run of no steps is a mistake."""
    assert debubble("run", small, "--model", f"{model}:workload", "--steps", 0).status == 2


def test_a_missing_torch_is_said(debubble: Any, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    monkeypatch.setattr("debubble.commands.options.find_spec", lambda name: None)
    result = debubble("run", small, "--model", f"{tmp_path}/model.py:workload")
    assert result.status == 2
    assert "debubble[torch]" in result.err


def test_an_emulated_run_is_traced(debubble: Any, small: str, tmp_path: Path) -> None:
    """Without a model the plan's times are waited for; the trace has a row of what happened and one of the plan."""
    pytest.importorskip("torch")
    trace = tmp_path / "trace.json"
    result = debubble("run", small, "--emulate", "--trace", trace)
    assert result.status == 0
    assert "makespan" in result.out
    rows = {e["args"]["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "M"}
    assert rows == {"rank 0", "rank 1", "measured", "planned"}


def test_a_run_without_a_model_is_refused(debubble: Any, small: str) -> None:
    """There is nothing to train: say what to give."""
    pytest.importorskip("torch")
    result = debubble("run", small)
    assert result.status == 2
    assert "needs a model" in result.err


def test_a_measured_profile_compiles(debubble: Any, model: str, tmp_path: Path) -> None:
    """What profile writes, compile takes."""
    profile = tmp_path / "profile.json"
    words = ("profile", "--model", f"{model}:workload", "--stages", 2, "-m", 4, "--repeat", 2, "-o", profile)
    result = debubble(*words)
    assert result.status == 0
    assert "times in ms, memory in MiB" in result.out
    assert debubble("compile", profile, "-m", 4, "--schedule", "1f1b").status == 0
