"""Placements: who owns which stage."""

from __future__ import annotations

import pytest

from debubble.compiler import placement
from debubble.compiler.errors import InputError


def test_named_placements() -> None:
    """The owners of every named placement, as the field draws them."""
    assert placement.named("linear", devices=3).down == (0, 1, 2)
    assert placement.named("loop", devices=2, chunks=3).down == (0, 1, 0, 1, 0, 1)
    assert placement.named("v", devices=3).down == (0, 1, 2, 2, 1, 0)
    assert placement.named("v", devices=2, chunks=3).down == (0, 1, 1, 0, 0, 1)
    assert placement.named("0,1,1,0", devices=2).kind == "v"
    assert placement.named("0,1,0,0", devices=2).kind == "explicit"


def test_bidirectional_halves() -> None:
    """The first half of the micro-batches goes down, the rest up; an odd one goes down."""
    both = placement.bidirectional(4)
    assert [both.goes_up(j, 5) for j in range(5)] == [False, False, False, True, True]
    assert both.owners(4, 5) == (3, 2, 1, 0)
    assert both.copies == ((0, 3), (1, 2), (1, 2), (0, 3))


@pytest.mark.parametrize(
    ("name", "devices", "chunks", "part"),
    [
        ("linear", 0, None, "at least 1"),
        ("ring", 4, None, "unknown placement"),
        ("linear", 4, 2, "one chunk"),
        ("0,x", 2, None, "not a list"),
        ("0,2", 3, None, "only 2 stages"),
        ("0,2,0", 3, None, "owns no stage"),
        ("0,1", 3, None, "is for 2 devices, not 3"),
        ("0,-1", 2, None, "stage 1 is on device -1|not a list|owns no stage|names"),
        ("v", 4, 0, "at least 1"),
    ],
)
def test_bad_placements_are_refused_in_words(name: str, devices: int, chunks: int | None, part: str) -> None:
    """Numbers that do not fit each other are named."""
    with pytest.raises(InputError, match=part):
        placement.named(name, devices=devices, chunks=chunks)


def test_both_directions_have_all_stages() -> None:
    """A file may claim a way up that is shorter than the way down; it is refused."""
    with pytest.raises(InputError, match="2 stages go down, but 0 up"):
        placement.Placement("bidirectional", 2, (0, 1), ())
