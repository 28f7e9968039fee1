"""The timeline as a figure."""

from __future__ import annotations

import builtins
from typing import Any
from xml.etree import ElementTree

import pytest

from debubble.compiler import placement
from debubble.compiler.errors import InputError
from debubble.compiler.named import named_schedule
from debubble.compiler.pictures import figure
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.simulation import Timeline, simulate


def _timeline(microbatches: int = 4, memory_cap: float | None = 3) -> Timeline:
    profile = Profile.uniform(stages=2, forward=2, backward_input=3, backward_weight=1, comm=0.5)
    problem = Problem(profile, placement.linear(2), microbatches, memory_cap)
    return simulate(problem, named_schedule("zb-h1", problem))


def _texts(svg: bytes) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter() if _is_text(element)]


def _is_text(element: ElementTree.Element) -> bool:
    return element.tag.endswith("}text")


def test_an_svg_states_its_costs_and_numbers() -> None:
    """The title, the legend with the costs, the transfer time and the micro-batches are text."""
    texts = _texts(figure.draw(_timeline(), format="svg"))
    assert "F  forward 2" in texts
    assert "B  input gradient 3" in texts
    assert "W  weight gradient 1" in texts
    assert any("transfer 0.5" in text for text in texts)
    assert any(text.startswith("zb-h1: 2 devices, 4 micro-batches, makespan") for text in texts)
    assert texts.count("3") >= 6


def test_a_png_is_a_png() -> None:
    """The other format."""
    assert figure.draw(_timeline(), format="png").startswith(b"\x89PNG")


def test_the_same_timeline_gives_the_same_bytes() -> None:
    """Figures under version control change only when the schedule does."""
    assert figure.draw(_timeline(), format="svg") == figure.draw(_timeline(), format="svg")


def test_two_cost_sets_give_two_legends() -> None:
    """One order drawn with other costs says so."""
    slow = Profile.uniform(stages=2, forward=4, backward_input=6, backward_weight=2)
    problem = Problem(slow, placement.linear(2), 4)
    texts = _texts(figure.draw(simulate(problem, _timeline().schedule), format="svg"))
    assert "F  forward 4" in texts


def test_a_figure_of_too_many_steps_is_refused() -> None:
    """Nobody could read it."""
    with pytest.raises(InputError, match="20000"):
        figure.draw(_timeline(microbatches=3400, memory_cap=None), format="svg")


def test_a_missing_matplotlib_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"debubble\[plot\]"):
        figure.draw(_timeline(), format="svg")


def test_the_cost_of_pairs_is_in_the_legend() -> None:
    """Unless the profile says otherwise a pair takes as long as both its halves; nothing is discounted in silence."""
    legends = []
    for ratio in (None, 0.9):
        profile = Profile.uniform(
            stages=4, forward=1, backward_input=1, backward_weight=1, comm=0.5, overlapped_pair=ratio
        )
        problem = Problem(profile, placement.bidirectional(4), 8)
        legends.append(_texts(figure.draw(simulate(problem, named_schedule("dualpipe", problem)), format="svg")))
    assert "F with backward in the sum of their times" in legends[0]
    assert "F with backward in 0.9 times the sum of their times" in legends[1]
    assert "BW  backward 2" in legends[0]
