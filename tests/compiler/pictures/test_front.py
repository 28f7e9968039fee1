"""The front as a figure."""

from __future__ import annotations

from debubble.compiler.pictures.front import Dot, draw

FRONT = [Dot(2, 30, "v", proved=True), Dot(4, 20, "loop")]
AXES = {"time": "makespan (ms)", "memory": "memory (GiB)"}


def _svg(front: list[Dot], others: list[Dot]) -> str:
    floors = [(dot.memory, dot.time - 1) for dot in front]
    return draw(front, others, floors, Dot(4, 40, "1F1B"), **AXES, format="svg").decode()


def test_every_plan_is_named() -> None:
    """What it is stands beside it, and the axes have their units."""
    text = _svg(FRONT, [Dot(3, 35)])
    for words in (">v<", ">loop<", ">1F1B<", ">beaten<", ">not proved<", "makespan (ms)", "memory (GiB)"):
        assert words in text


def test_the_legend_names_only_what_is_there() -> None:
    """No plan is beaten, none is without proof."""
    text = _svg(FRONT[:1], [])
    assert "beaten" not in text
    assert "not proved" not in text


def test_an_empty_front_is_drawn() -> None:
    """The yardstick alone."""
    assert "1F1B" in _svg([], [])
