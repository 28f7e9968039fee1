"""`debubble compare`: every named schedule and the search, in one table."""

from __future__ import annotations

from typing import Any

import pytest

from debubble.comparison import on_placement
from debubble.compiler import placement
from debubble.compiler.division import divide
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage

COSTS = ("compare", "--devices", 4, "--forward", 2, "--backward-input", 2, "--backward-weight", 2, "--time-limit", 0.5)


def test_the_table_has_every_classic(debubble: Any) -> None:
    """The search and the named schedules, each with its placement."""
    result = debubble(*COSTS, "-m", 8)
    assert result.status == 0
    placements = {words[0]: words[1] for line in result.out.splitlines() if len(words := line.split()) > 6}
    assert placements["search"] == placements["gpipe"] == placements["1f1b"] == placements["zb-h1"] == "linear"
    assert placements["interleaved"] == "loop"


def test_work_per_device_is_held_fixed(debubble: Any) -> None:
    """Interleaved 1F1B with two chunks halves the bubble: 3/16 against 3/8, at the same ideal time."""
    rows = {row["schedule"]: row for row in debubble(*COSTS, "-m", 8, "--json").json["rows"]}
    assert rows["1f1b"]["bubble_ratio"] == pytest.approx(0.375)
    assert rows["interleaved"]["bubble_ratio"] == pytest.approx(0.1875)
    assert rows["interleaved"]["makespan"] == pytest.approx(57)


def test_schedules_over_the_cap_come_last(debubble: Any) -> None:
    """GPipe holds eight micro-batches where four fit."""
    rows = debubble(*COSTS, "-m", 8, "--memory-cap", 4, "--json").json["rows"]
    fits = [row["fits"] for row in rows]
    assert fits == sorted(fits, reverse=True)
    assert not next(row for row in rows if row["schedule"] == "gpipe")["fits"]


def test_the_search_is_at_least_as_good_as_every_schedule_that_fits(debubble: Any) -> None:
    """On its own placement no named schedule within the caps beats it."""
    rows = debubble(*COSTS, "-m", 8, "--memory-cap", 4, "--json").json["rows"]
    best = next(row["value"] for row in rows if row["schedule"] == "search")
    assert all(best <= row["value"] for row in rows if row["fits"] and row["placement"] == "linear")


def test_uneven_stages_are_divided_device_by_device() -> None:
    """Two chunks of a device share its stage equally, and a merged profile has the sums."""
    stages = tuple(
        Stage(
            forward=f,
            backward_input=2 * f,
            backward_weight=f,
            backward=5 * f,
            memory=Memory(2 * f, -f, -f),
            static_memory=6 * f,
            output_bytes=3,
        )
        for f in (1.0, 4.0)
    )
    halves = divide(Profile(stages=stages), placement.linear(2), placement.v(2))
    assert [stage.forward for stage in halves.stages] == [0.5, 2, 2, 0.5]
    assert [stage.backward for stage in halves.stages] == [2.5, 10, 10, 2.5]
    assert [stage.memory.forward for stage in halves.stages] == [1, 4, 4, 1]
    assert [stage.static_memory for stage in halves.stages] == [3, 12, 12, 3]
    assert [stage.output_bytes for stage in halves.stages] == [3, 3, 3, 3]
    assert divide(halves, placement.v(2), placement.linear(2)) == Profile(stages=stages)


def test_the_same_placement_is_left_alone() -> None:
    """Nothing is divided where nothing changes."""
    profile = Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(2), 4)
    assert on_placement(problem, "linear") is problem
