"""Loading workloads from files, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from debubble.compiler.errors import InputError
from debubble.runtime.workload import Workload, load_workload

FAILING = Path(__file__).with_name("failing.py")


def test_a_workload_is_loaded() -> None:
    """The function is called and what it returns is used."""
    assert isinstance(load_workload(f"{FAILING}:raises"), Workload)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("model.py", "does not name a function"),
        ("model.py:", "does not name a function"),
        (":function", "does not name a function"),
        ("nowhere.py:function", "there is no such file"),
        (f"{FAILING}:missing", "there is no function 'missing'.*it has .*raises"),
        (f"{FAILING}:NO_FUNCTION", "there is no function 'NO_FUNCTION'"),
        (f"{FAILING}:returns_a_number", "must return a debubble.runtime.Workload, not int"),
        (f"{FAILING}:breaks", "breaks.. raised KeyError: 'no such model'"),
    ],
)
def test_what_cannot_be_loaded_is_named(reference: str, message: str) -> None:
    """Every way to fail has its own words."""
    with pytest.raises(InputError, match=message):
        load_workload(reference)


@pytest.mark.parametrize(
    ("content", "message"),
    [("def f(:\n", r"model\.py:1: invalid syntax"), ("import no_such_module\n", "raised ModuleNotFoundError")],
)
def test_a_file_that_is_not_a_model(tmp_path: Path, content: str, message: str) -> None:
    """A syntax error has its line, any other error its name."""
    path = tmp_path / "model.py"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_workload(f"{path}:f")


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    """The ending decides."""
    path = tmp_path / "model.txt"
    path.write_text("")
    with pytest.raises(InputError, match="not a Python file"):
        load_workload(f"{path}:f")


def test_weights_depend_on_the_seed_and_the_stage_alone() -> None:
    """A stage has the same weights whatever was built before it."""
    workload = load_workload(f"{FAILING}:raises")
    workload.build(0, 2, seed=5)
    one, other = (workload.build(1, 2, seed=5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_stage_must_be_a_module() -> None:
    """Anything else is refused by its type."""
    workload = Workload(lambda index, count: 3, lambda step, m: (1, 2), lambda a, b: a)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match=r"must return a torch\.nn\.Module, not int"):
        workload.build(0, 1, seed=0)


def test_a_batch_must_be_a_pair() -> None:
    """Inputs alone are refused."""
    workload = Workload(lambda index, count: torch.nn.Identity(), lambda step, m: 1, lambda a, b: a)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match=r"must return \(inputs, targets\)"):
        workload.data(0, 1, seed=0)
