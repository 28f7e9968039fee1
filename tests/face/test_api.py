"""The Python face: what `import debubble` gives, and what it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import debubble


def test_every_public_name_exists() -> None:
    """Each name of __all__ can be had."""
    assert all(getattr(debubble, name) is not None for name in debubble.__all__)


def test_dir_lists_the_public_names() -> None:
    """Names are seen before they are loaded, and nothing else is."""
    assert dir(debubble) == sorted(debubble.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The message names the package and the attribute."""
    with pytest.raises(AttributeError, match=r"debubble.*nothing_like_it"):
        _ = debubble.nothing_like_it


@pytest.mark.parametrize("statement", ["import debubble", "import debubble; debubble.compile; debubble.Profile"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    """Neither torch nor a solver is imported before it is needed."""
    heavy = {"torch", "pulp", "networkx", "matplotlib", "ortools", "highspy"}
    code = f"import sys; {statement}; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_first_example() -> None:
    """The call of the package's docstring gives a plan within its cap."""
    profile = debubble.Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1)
    plan = debubble.compile(profile, microbatches=8, memory_cap=4, time_limit=2)
    assert max(plan.timeline.peak_memory) <= 4
    assert "8 micro-batches" in str(plan)


def test_a_placement_may_be_a_list() -> None:
    """Stages 0 and 3 on device 0, stages 1 and 2 on device 1."""
    profile = debubble.Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    plan = debubble.compile(profile, microbatches=2, placement=(0, 1, 1, 0), schedule="gpipe")
    assert plan.problem.placement.kind == "v"


def test_the_search_reports() -> None:
    """`report` is called with the elapsed time, the best value and the bound."""
    calls: list[tuple[float, float | None, float | None]] = []
    profile = debubble.Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
    debubble.compile(profile, microbatches=4, time_limit=2, report=lambda *call: calls.append(call))
    assert calls
    assert all(len(call) == 3 for call in calls)
