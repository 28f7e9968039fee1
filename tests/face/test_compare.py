"""`debubble compare`: every named schedule and the search, in one table."""

from __future__ import annotations

import csv
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


def test_a_small_group_shows_its_loss(debubble: Any) -> None:
    """Groups of two on four devices stand beside the groups of four that the interleaved schedule has by default."""
    rows = {row["schedule"]: row for row in debubble(*COSTS, "-m", 8, "--group-size", 2, "--json").json["rows"]}
    assert rows["interleaved"]["makespan"] == pytest.approx(57)
    assert rows["interleaved/2"]["makespan"] > 57


def test_both_overheads_are_shown_with_their_names(debubble: Any) -> None:
    """1F1B of four devices and eight micro-batches: 37.5 % of the ideal time, 27.3 % of all device time."""
    out = debubble(*COSTS, "-m", 8).out
    line = next(line for line in out.splitlines() if line.startswith("1f1b"))
    assert line.split()[3:5] == ["37.5%", "27.3%"]
    assert "bubble ratio, (T - ideal) / ideal" in out
    assert "idle fraction, idle time of all devices / (devices x makespan)" in out


def test_the_price_of_pairs_is_stated(debubble: Any) -> None:
    """Nothing is discounted in silence."""
    assert "an overlapped forward and backward take the sum of their times" in debubble(*COSTS, "-m", 8).out


def test_the_table_fits_a_terminal(debubble: Any) -> None:
    """Eighty columns, with the most columns that there can be."""
    words = ("compare", "examples/zero-bubble-6.2b.json", "-m", 24, "--time-limit", 0.5, "--finalise", 12.5)
    assert max(map(len, debubble(*words).out.splitlines())) <= 80


def test_what_follows_the_last_operation_is_shown_apart(debubble: Any) -> None:
    """1F1B's first device ends last: three more for it, and the makespan stays what it was."""
    rows = {row["schedule"]: row for row in debubble(*COSTS, "-m", 8, "--finalise", "3,1,1,1", "--json").json["rows"]}
    assert rows["1f1b"]["makespan"] == pytest.approx(66)
    assert rows["1f1b"]["step"] == pytest.approx(69)


def test_devices_finalise_each_or_alike(debubble: Any) -> None:
    """Two numbers do not say it for four devices."""
    assert debubble(*COSTS, "-m", 8, "--finalise", "3,1").status == 2


def test_transfers_and_copies_of_weights(debubble: Any) -> None:
    """Two chunks in a loop cross 7 boundaries instead of 3; in both directions everything is held twice."""
    rows = {row["schedule"]: row for row in debubble(*COSTS, "-m", 8, "--json").json["rows"]}
    assert [rows[name]["transfers"] for name in ("1f1b", "interleaved", "zb-v", "dualpipe")] == [48, 112, 96, 48]
    assert [rows[name]["weights"] for name in ("1f1b", "interleaved", "zb-v", "dualpipe")] == [1, 1, 1, 2]


def test_csv_has_what_json_has(debubble: Any) -> None:
    """The same rows and columns, for a spreadsheet."""
    rows = list(csv.DictReader(debubble(*COSTS, "-m", 8, "--csv").out.splitlines()))
    own = next(row for row in rows if row["schedule"] == "1f1b")
    assert float(own["makespan"]) == pytest.approx(66)
    assert own["peak_memory"] == "4 3 2 1"


def test_the_cap_is_said(debubble: Any) -> None:
    """With what it does to the order of the table."""
    assert "sorted by makespan, those over the cap of 4 last" in debubble(*COSTS, "-m", 8, "--memory-cap", 4).out
    assert "over the caps of 3 to 4 last" in debubble(*COSTS, "-m", 8, "--memory-cap", "4,4,3,3").out


def test_an_interrupt_leaves_the_named_schedules(debubble: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search, and without gaps."""

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("debubble.comparison.search", interrupted)
    result = debubble(*COSTS, "-m", 8)
    names = [line.split()[0] for line in result.out.splitlines() if line.strip()]
    assert "1f1b" in names
    assert "search" not in names
    assert "\ninterrupted: " in result.out


def test_recomputation_is_compared_too(debubble: Any) -> None:
    """Every forward twice: eight micro-batches of 2 more on the busiest device, and three more on the way back."""
    rows = {row["schedule"]: row for row in debubble(*COSTS, "-m", 8, "--recompute", "all", "--json").json["rows"]}
    assert rows["1f1b"]["makespan"] == pytest.approx(66 + 8 * 2 + 3 * 2)


@pytest.mark.parametrize(
    ("devices", "microbatches", "share"),
    [(4, 1, "75.0%"), (4, 4, "42.9%"), (4, 16, "15.8%"), (4, 32, "8.6%"), (4, 64, "4.5%"), (8, 64, "9.9%")],
)
def test_published_idle_fractions_of_gpipe(debubble: Any, devices: int, microbatches: int, share: str) -> None:
    """(p - 1) / (m + p - 1), as textbooks list it."""
    costs = ("--forward", 10, "--backward-input", 10, "--backward-weight", 10, "--time-limit", 0.3)
    out = debubble("compare", "--devices", devices, *costs, "-m", microbatches).out
    assert next(line for line in out.splitlines() if line.startswith("gpipe")).split()[4] == share
