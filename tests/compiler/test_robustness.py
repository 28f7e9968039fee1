"""Robustness: values under random durations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Spread, Stage
from debubble.compiler.robustness import MAX_DURATIONS, Jitter, deviations
from debubble.compiler.simulation import simulate


def jitter(problem: Problem, spread: float, runs: int = 50, seed: int = 0) -> Jitter:
    return Jitter(problem, spread, runs=runs, seed=seed)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(problem=problems(most_devices=4, most_microbatches=5), name=st.sampled_from(["naive", "gpipe"]))
def test_without_spread_nothing_changes(problem: Problem, name: str) -> None:
    """At a spread of 0 every run takes what the simulation says, by makespan and by span."""
    timeline = simulate(problem, named_schedule(name, problem))
    values = jitter(problem, 0.0, runs=3).values(timeline)
    assert values == pytest.approx([timeline.value] * 3)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "dualpipe"])
def test_the_same_luck_for_every_operation_scales_the_value(name: str) -> None:
    """Without transfers, factors of 3 on all operations make the value 3 times as long; pairs count as one step."""
    place = placement.bidirectional(4) if name == "dualpipe" else placement.linear(4)
    profile = Profile.uniform(stages=4, forward=3, backward_input=4, backward_weight=2)
    problem = Problem(profile, place, 8)
    timeline = simulate(problem, named_schedule(name, problem))
    luck = jitter(problem, 0.1, runs=2)
    luck._factors = np.full_like(luck._factors, 3.0)
    assert luck.values(timeline) == pytest.approx([3 * timeline.value] * 2)


def test_jitter_costs_time_and_more_of_it_costs_more() -> None:
    """The median of 1F1B grows with the spread: a step waits for the latest of its inputs."""
    profile = Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1)
    problem = Problem(profile, placement.linear(4), 16)
    timeline = simulate(problem, named_schedule("1f1b", problem))
    medians = [float(np.median(jitter(problem, spread, runs=200).values(timeline))) for spread in (0, 0.1, 0.3)]
    assert timeline.value == pytest.approx(medians[0])
    assert medians[0] < medians[1] < medians[2]


def test_same_seed_same_luck() -> None:
    """Two jitters of one seed are the same, of two seeds are not."""
    profile = Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(2), 4)
    timeline = simulate(problem, named_schedule("1f1b", problem))
    first, again, other = (jitter(problem, 0.1, seed=seed).values(timeline) for seed in (1, 1, 2))
    assert list(first) == list(again)
    assert list(first) != list(other)


def test_large_problems_get_fewer_runs() -> None:
    """What is held at a time is bounded."""
    profile = Profile.uniform(stages=64, forward=1, backward_input=1, backward_weight=1)
    luck = jitter(Problem(profile, placement.linear(64), 1024), 0.1, runs=1000)
    assert 1 <= luck.runs < 1000
    assert luck._factors.size <= MAX_DURATIONS


def test_the_measured_spread_is_what_counts() -> None:
    """The distance between quartiles of a profile becomes a standard deviation; what was not measured gets 5 %."""
    spread = Spread(forward=0.1349, backward_input=0.0, backward_weight=0.0, backward=0.2698)
    stages = (Stage(forward=1, backward_input=1, backward_weight=1, spread=spread),)
    stages += (Stage(forward=1, backward_input=1, backward_weight=1),)
    problem = Problem(Profile(stages=stages), placement.linear(2), 2)
    assert deviations(problem).T.tolist() == [pytest.approx([0.1, 0.0, 0.0, 0.2]), [0.05] * 4]
    assert deviations(problem, 0.3).tolist() == [[0.3, 0.3]] * 4
