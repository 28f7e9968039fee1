"""The profile of micro-batches of another size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler.errors import InputError
from debubble.compiler.profile import Link, Memory, Profile, Stage
from debubble.compiler.scaling import between, scaled

STAGE = Stage(
    forward=3,
    backward_input=4,
    backward_weight=2,
    backward=5,
    memory=Memory(4, -1, -3),
    static_memory=10,
    output_bytes=100,
)
PROFILE = Profile(stages=(STAGE, STAGE), comm=Link(1, 50), time_unit="ms")


def test_twice_the_size_costs_twice() -> None:
    """But for weights, and the latency of the link."""
    stage = Stage(
        forward=6,
        backward_input=8,
        backward_weight=4,
        backward=10,
        memory=Memory(8, -2, -6),
        static_memory=10,
        output_bytes=200,
    )
    assert scaled(PROFILE, 2) == Profile(stages=(stage, stage), comm=Link(1, 50), time_unit="ms")


@pytest.mark.parametrize(("comm", "double"), [(1.5, 3.0), (((0, 2), (3, 0)), ((0, 4), (6, 0)))])
def test_transfer_times_grow_with_the_size(comm: Any, double: Any) -> None:
    """Numbers and matrices alike."""
    profile = msgspec.structs.replace(PROFILE, comm=comm)
    assert scaled(profile, 2).comm == double


@settings(derandomize=True, deadline=None)
@given(st.floats(0.1, 10))
def test_there_and_back(factor: float) -> None:
    """A profile scaled by a factor and by its inverse is what it was."""
    back = scaled(scaled(PROFILE, factor), 1 / factor)
    assert back.stages[0].forward == pytest.approx(3)
    assert back.stages[0].memory.forward == pytest.approx(4)


def test_two_measurements_give_the_line_through_them() -> None:
    """A constant part of 1 stays however small the micro-batch."""
    small = msgspec.structs.replace(STAGE, forward=2)
    half = between(PROFILE, Profile(stages=(small, small), comm=Link(1, 50), time_unit="ms"), 1.5)
    assert half.stages[0].forward == 1.5
    assert half.stages[0].backward_input == 4


def test_a_line_below_zero_is_refused() -> None:
    """Two measurements that leave nothing for a still smaller micro-batch."""
    small = msgspec.structs.replace(STAGE, forward=0.5)
    other = Profile(stages=(small, small), comm=Link(1, 50), time_unit="ms")
    with pytest.raises(InputError, match="the line through the two profiles"):
        between(PROFILE, other, 2)


@pytest.mark.parametrize("more", [{"time_unit": "s"}, {"stages": (STAGE,)}, {"comm": 3.0}])
def test_profiles_of_two_models_have_no_line(more: dict[str, Any]) -> None:
    """Units, stages and links must be the same."""
    with pytest.raises(InputError, match="two profiles of one model"):
        between(PROFILE, msgspec.structs.replace(PROFILE, **more), 0.5)
