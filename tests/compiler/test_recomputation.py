"""Recomputation: times and memory of the repeated forward, never counted below the true peak."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import stages

from debubble.compiler import placement
from debubble.compiler.errors import InputError
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.recomputation import recomputed
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate


def true_peaks(profile: Profile, schedule: Schedule) -> list[float]:
    """The peak of every device, counted step by step: a backward brings back what its forward held."""
    peaks = []
    for order in schedule.orders:
        held = peak = sum({step.stage: profile.stages[step.stage].static_memory for step in order}.values())
        for kind, stage, _ in order:
            memory = profile.stages[stage].memory
            if kind in ("B", "BW"):
                rise = max(memory.backward_input, 0.0) if kind == "B" else 0.0
                peak = max(peak, held + memory.forward + rise)
            if kind == "B":
                held += memory.forward + memory.backward_input
            elif kind == "W":
                held += memory.backward_weight
            peak = max(peak, held)
        peaks.append(peak)
    return peaks


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    held=st.lists(stages(), min_size=2, max_size=4),
    name=st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    backward=st.sampled_from(["any", "split"]),
)
def test_never_below_the_true_peak(held: list[Stage], name: str, backward: str) -> None:
    """Whatever the schedule, the counted peak covers the activations that a backward brings back."""
    profile = Profile(stages=tuple(held))
    problem = Problem(recomputed(profile), placement.linear(len(held)), 5, backward=backward)
    schedule = named_schedule(name, problem)
    for counted, true in zip(simulate(problem, schedule).peak_memory, true_peaks(profile, schedule), strict=True):
        assert counted >= true - 1e-9


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_fused_schedule_holds_one_forward(name: str) -> None:
    """With full recomputation GPipe and 1F1B hold one micro-batch's activations, and a backward takes F longer."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(recomputed(profile), placement.linear(4), 8)
    timeline = simulate(problem, named_schedule(name, problem))
    assert timeline.peak_memory == [1, 1, 1, 1]
    assert timeline.makespan == (8 + 3) * 4


def test_the_input_is_kept() -> None:
    """Between F and B a stage holds the output of the one before, in the profile's unit of bytes."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=Memory(8, 0, -8), output_bytes=2 * 2**20)
    found = recomputed(Profile(stages=(stage, stage), memory_unit="MiB"))
    assert [s.memory.forward for s in found.stages] == [0, 2]
    assert [s.static_memory for s in found.stages] == [8, 6]


def test_an_input_larger_than_the_activations_is_refused() -> None:
    """Where nothing is saved there is nothing to recompute."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=Memory(1, 0, -1), output_bytes=2**21)
    with pytest.raises(InputError, match=r"stages\[1\].*nothing to recompute"):
        recomputed(Profile(stages=(stage, stage), memory_unit="MiB"))
