"""Megatron-LM's order tables and layout strings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler.errors import InputError
from debubble.compiler.interchange import layout, megatron


def test_order_table() -> None:
    """The k-th appearance of a chunk is micro-batch k, and chunk c of device r is stage (c - 1) p + r."""
    drawing = megatron.read("[1, 2, -2, 1, -1]\n[1, 2, -2, 1, -1]\n")
    assert [" ".join(map(str, row.items)) for row in drawing.rows] == [
        "0F0 2F0 2BW0 0F1 0BW0",
        "1F0 3F0 3BW0 1F1 1BW0",
    ]


def test_strange_number() -> None:
    """Chunks count from 1."""
    (error,) = megatron.read("1 0 -1").report.errors
    assert (error.code, error.line, error.column) == ("bad-token", 1, 3)


def test_layout() -> None:
    """The example of Megatron's documentation: 32 stages, one with the prediction layer, one with the loss."""
    stages = layout.read("Et*3|(tt|)*29,m|L")
    assert len(stages) == 32
    assert (stages[0], stages[1], stages[-2], stages[-1]) == ("Ettt", "tt", "m", "L")
    assert layout.placed("Et*3|(tt|)*29,m|L", 16).stages == 32


def test_empty_stage() -> None:
    """A stage without layers is a stage."""
    assert layout.read("Ett||tL") == ("Ett", "", "tL")


@pytest.mark.parametrize("text", ["t|(tt", "t|*", "t|7", "t|(t|)*99999*9"])
def test_not_a_layout(text: str) -> None:
    """What is not a layout is refused, and nothing expands without bound."""
    with pytest.raises(InputError, match="layout"):
        layout.read(text)


def test_a_layout_is_written_as_short_as_it_is_read() -> None:
    """Repeated letters and repeated stages once, with their number."""
    text = "Et*4|(tt|)*29m|L"
    assert layout.write(layout.read(text)) == text


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(alphabet="Etm", max_size=6), min_size=1, max_size=12))
def test_what_is_written_is_read_again(stages: list[str]) -> None:
    """Empty stages, single ones and runs."""
    assert layout.read(layout.write(stages)) == tuple(stages)
