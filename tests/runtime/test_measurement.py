"""Profiles that are measured on this machine. Times are whatever they are; everything else is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from debubble.compiler.errors import InputError, RunError
from debubble.compiler.profile import Link, Profile, Spread
from debubble.runtime.measurement import Measurement, measure

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'transformer.py'}:workload"
FAILING = Path(__file__).with_name("failing.py")
WIDTH, LENGTH, ROWS, WORDS = 64, 32, 2, 97
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def measured() -> Measurement:
    """The example in two stages."""
    return measure(EXAMPLE, stages=2, microbatches=4, repeat=2)


def test_the_output_of_a_stage_is_counted(measured: Measurement) -> None:
    """Single-precision hidden states of one micro-batch; the last stage sends nothing."""
    sizes = [stage.output_bytes for stage in measured.profile.stages]
    assert sizes == [ROWS * LENGTH * WIDTH * 4, 0]


def test_static_memory_is_weights_gradients_and_optimizer(measured: Measurement) -> None:
    """AdamW keeps two numbers and a counter for each weight."""
    block = 2 * 2 * WIDTH + 12 * WIDTH * WIDTH + (3 + 1 + 4 + 1) * WIDTH
    tensors, weights = 4 * 12 + 2, 4 * block + (WORDS + LENGTH) * WIDTH
    expected = (4 * 4 * weights + 4 * tensors) / MEBIBYTE
    assert measured.profile.stages[0].static_memory == pytest.approx(expected)


def test_memory_changes_sum_to_nothing(measured: Measurement) -> None:
    """What F takes, B and W give back; at least the inputs of four linear layers in four blocks are held."""
    for stage in measured.profile.stages:
        changes = stage.memory
        assert changes.forward + changes.backward_input + changes.backward_weight == pytest.approx(0)
        assert changes.forward > 4 * 7 * ROWS * LENGTH * WIDTH * 4 / MEBIBYTE


def test_every_operation_has_a_time(measured: Measurement) -> None:
    """On stage 0 B is empty; everything else takes time."""
    first, last = measured.profile.stages
    assert first.backward_input < first.backward_weight
    assert min(first.forward, first.fused, last.forward, last.backward_input, last.backward_weight, last.fused) > 0


def test_the_link_is_measured(measured: Measurement) -> None:
    """Between two processes, in milliseconds."""
    link = measured.profile.comm
    assert isinstance(link, Link)
    assert link.latency > 0
    assert measured.profile.time_unit == "ms"


def test_the_profile_says_how_far_its_times_vary(measured: Measurement) -> None:
    """Two repetitions are never the same to the nanosecond, in F at least."""
    assert all(isinstance(stage.spread, Spread) and stage.spread.forward > 0 for stage in measured.profile.stages)


def test_the_profile_says_where_it_was_measured(measured: Measurement) -> None:
    """The version of torch is a part of it."""
    assert f"torch {torch.__version__}" in str(measured.profile.machine)


def test_the_profile_can_be_saved(measured: Measurement, tmp_path: Path) -> None:
    """What was measured reads back as it is."""
    measured.profile.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json") == measured.profile


def test_a_dominant_stage_is_warned_of() -> None:
    """A stage that takes nearly all the time looks like one that loads data."""
    measured = measure(f"{FAILING}:loads_data", stages=3, microbatches=2, repeat=1)
    assert any("stage 0 takes" in warning and "does it load data" in warning for warning in measured.warnings)


def test_no_stages_are_refused() -> None:
    """There must be at least one."""
    with pytest.raises(InputError, match="number of stages must be at least 1, not 0"):
        measure(EXAMPLE, stages=0, microbatches=4)


@pytest.mark.parametrize(
    "device",
    ["abacus", pytest.param("cuda", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"))],
)
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    """By its name, before anything is measured."""
    with pytest.raises(InputError, match=f"the device '{device}' cannot be used"):
        measure(EXAMPLE, stages=2, microbatches=4, repeat=2, device=device)


def test_a_stage_that_fails_is_named() -> None:
    """Its own error is told with the number of the stage."""
    with pytest.raises(RunError, match="stage 1: ValueError: out of luck"):
        measure(f"{FAILING}:raises", stages=2, microbatches=4, repeat=2)
