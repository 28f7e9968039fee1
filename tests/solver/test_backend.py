"""The face of the ILP solvers."""

from __future__ import annotations

import importlib.util
import os
import random
import time
from pathlib import Path

import pulp
import pytest

from debubble.compiler.errors import InputError
from debubble.solver.backend import Backend, BackendMissingError, Cbc, ilp_backend

AVAILABLE = ["cbc", *(["highs"] if importlib.util.find_spec("highspy") else [])]
"""HiGHS is an extra: it is tested where it is installed."""


@pytest.fixture(params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> Backend:
    return ilp_backend(request.param)


def knapsack(least: int = 0) -> pulp.LpProblem:
    """min -(5 a + 4 b + 3 c) under one constraint; -9 at best. `least` asks for that many items."""
    model = pulp.LpProblem("knapsack", pulp.LpMinimize)
    a, b, c = (pulp.LpVariable(name, cat="Binary") for name in "abc")
    model += -5 * a - 4 * b - 3 * c
    model += 2 * a + 3 * b + c <= 5
    model += a + b + c >= least
    return model


def hard(size: int = 40) -> pulp.LpProblem:
    """A market split problem (Cornuejols and Dawande 1998), far too hard for a second."""
    model = pulp.LpProblem("split", pulp.LpMinimize)
    choices = [pulp.LpVariable(f"x{j}", cat="Binary") for j in range(size)]
    slacks = []
    rng = random.Random(0)
    for row in range(5):
        weights = [rng.randrange(100) for _ in range(size)]
        over, under = pulp.LpVariable(f"o{row}", 0), pulp.LpVariable(f"u{row}", 0)
        model += pulp.lpSum(w * x for w, x in zip(weights, choices, strict=True)) + over - under == sum(weights) // 2
        slacks += [over, under]
    model += pulp.lpSum(slacks)
    return model


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


def test_an_optimum_is_found(backend: Backend) -> None:
    """The best solution, its value as the bound, and all variables."""
    answer = backend.solve(knapsack(), soon())
    assert (answer.status, answer.bound) == ("optimal", -9)
    assert {name: round(value) for name, value in answer.values.items()} == {"a": 1, "b": 1, "c": 0}


def test_a_model_without_solution_is_infeasible(backend: Backend) -> None:
    """Three items do not fit."""
    answer = backend.solve(knapsack(least=3), soon())
    assert (answer.status, answer.values) == ("infeasible", {})


def test_a_time_limit_is_neither_optimal_nor_infeasible(backend: Backend) -> None:
    """A solver that is stopped reports a bound below its best solution."""
    model = hard()
    answer = backend.solve(model, soon(2))
    assert answer.status == "stopped"
    assert answer.bound is not None
    reached = sum(answer.values[name] for name in answer.values if name[0] in "ou")
    assert not answer.values or answer.bound < reached


def test_no_time_is_no_answer(backend: Backend) -> None:
    """A deadline that has passed stops at once."""
    assert backend.solve(knapsack(), soon(-1)).status == "stopped"


def test_names_carry_the_version(backend: Backend) -> None:
    """A bound that rests on a solver's word names it."""
    backend.solve(knapsack(), soon())
    assert any(character.isdigit() for character in backend.name)


def test_nothing_is_printed(backend: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    """The standard output belongs to results."""
    backend.solve(knapsack(), soon())
    assert capfd.readouterr().out == ""


def test_cbc_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files are removed, when CBC has to be stopped too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Cbc().solve(hard(), soon(1))
    assert list(tmp_path.iterdir()) == []


def test_cbc_is_killed_at_the_deadline(tmp_path: Path) -> None:
    """A child that does not keep its own time limit is ended, and no answer is read from it."""
    stubborn = tmp_path / "cbc"
    stubborn.write_text("#!/bin/sh\nexec sleep 600\n")
    stubborn.chmod(0o755)
    solver = Cbc()
    solver.path = str(stubborn)
    answer = solver.solve(knapsack(), soon(0.5))
    assert (answer.status, answer.values, answer.bound) == ("stopped", {}, None)


def test_a_missing_cbc_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search can go on without the ILP when it knows that CBC is not there."""
    monkeypatch.setattr("pulp.apis.coin_api.pulp_cbc_path", "/nowhere/cbc")
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(BackendMissingError, match="CBC"):
        Cbc()


def test_a_cbc_that_cannot_run_is_missing_too(tmp_path: Path) -> None:
    """A binary for another machine is found only when it is started."""
    broken = tmp_path / "cbc"
    broken.write_bytes(b"\x7fELF broken")
    broken.chmod(0o755)
    solver = Cbc()
    solver.path = str(broken)
    with pytest.raises(BackendMissingError, match="cannot be executed"):
        solver.solve(knapsack(), soon())


def test_a_missing_highs_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendMissingError, match="highs"):
        ilp_backend("highs")


def test_an_unknown_name_is_refused() -> None:
    """There are three back ends."""
    with pytest.raises(InputError, match="gurobi"):
        ilp_backend("gurobi")
