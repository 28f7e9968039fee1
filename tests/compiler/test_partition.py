"""Layers gathered into stages."""

from __future__ import annotations

import itertools
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler import placement
from debubble.compiler.errors import InputError
from debubble.compiler.layers import Layer, Layers
from debubble.compiler.partition import partition, split
from debubble.compiler.profile import Memory

FREE = [math.inf] * 4


def _sums(values: list[float], ends: tuple[int, ...] | None) -> list[float]:
    assert ends is not None
    return [sum(values[first:last]) for first, last in pairwise((0, *ends))]


def _layers(times: list[float], static: float = 0.0) -> Layers:
    layers = tuple(
        Layer(
            name=str(n),
            forward=time,
            backward_input=0,
            backward_weight=0,
            memory=Memory(0, 0, 0),
            static_memory=static,
        )
        for n, time in enumerate(times)
    )
    return Layers(layers=layers)


def test_an_embedding_on_both_ends() -> None:
    """Eleven layers of which some take nothing and the embeddings take twice a block, in four equal parts."""
    times = [0.0, 2, 0, 1, 1, 1, 1, 0, 0, 2, 0]
    assert _sums(times, partition(times, times, FREE)) == [2, 2, 2, 2]


def test_an_odd_number_of_layers_loses_none() -> None:
    """Seven layers in two stages are four and three."""
    assert partition([1.0] * 7, [1.0] * 7, FREE[:2]) in ((3, 7), (4, 7))


def test_parts_are_as_equal_as_the_longest_allows() -> None:
    """One long layer is no reason for the others to lie on one stage."""
    times = [9.0, 1, 1, 1, 1, 1, 1]
    assert _sums(times, partition(times, times, FREE[:3])) == [9, 3, 3]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=8), st.integers(1, 4))
def test_no_split_has_a_shorter_longest_part(times: list[int], parts: int) -> None:
    """Against all splits of a small model."""
    best = min(
        max(_sums(times, (*inner, len(times)))) for inner in itertools.combinations(range(1, len(times)), parts - 1)
    )
    assert max(_sums(times, partition(times, times, [math.inf] * parts))) == best


def test_a_part_needs_no_more_than_its_limit() -> None:
    """The first device has room for one layer alone."""
    assert partition([1.0] * 4, [1.0] * 4, [1.0, 3.0]) == (1, 4)


def test_limits_that_no_split_keeps() -> None:
    """None, not a wrong answer."""
    assert partition([1.0] * 4, [1.0] * 4, [1.0, 2.0]) is None


def test_caps_are_shared_by_the_stages_of_a_device() -> None:
    """Of four units of cap each of two chunks gets two, so that no stage has three layers."""
    ends = split(_layers([4.0, 1, 1, 1, 1, 1, 1, 1], static=1.0), placement.v(2), (4.0, 4.0))
    assert _sums([1.0] * 8, ends) == [2, 2, 2, 2]


def test_more_stages_than_layers_are_refused() -> None:
    """Layers are not cut."""
    with pytest.raises(InputError, match="4 stages cannot be made of 3 layers"):
        split(_layers([1.0] * 3), placement.linear(4))
