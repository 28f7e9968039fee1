"""`debubble compile`: what it prints, and where it puts the plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debubble import Plan
from debubble.solver import search

COSTS = ("compile", "--devices", 4, "--forward", 1, "--backward-input", 1, "--backward-weight", 1, "--time-limit", 0.2)
KEYS = {
    *("status", "proof", "method", "objective", "value", "makespan", "span", "lower_bound", "bound", "gap"),
    *("bubble_ratio", "idle_fraction", "peak_memory", "devices", "stages", "microbatches", "seconds", "warnings"),
    "plan",
}


def test_the_json_keys(debubble: Any) -> None:
    """Every key that scripts rely on is there, in one object on one line."""
    result = debubble(*COSTS, "-m", 8, "--schedule", "1f1b", "--json")
    assert result.status == 0
    assert result.out.count("\n") == 1
    assert result.json.keys() >= KEYS


def test_both_bubbles_of_1f1b(debubble: Any) -> None:
    """Four devices, eight micro-batches: 3/8 of the ideal time, 3/11 of all device time."""
    found = debubble(*COSTS, "-m", 8, "--schedule", "1f1b", "--json").json
    assert found["bubble_ratio"] == pytest.approx(0.375)
    assert found["idle_fraction"] == pytest.approx(3 / 11)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("microbatches", "makespan", "ratio", "fraction"), [(8, 66, "37.50%", "27.27%"), (16, 114, "18.75%", "15.79%")]
)
def test_both_bubbles_are_printed(
    debubble: Any, schedule: str, microbatches: int, makespan: int, ratio: str, fraction: str
) -> None:
    """The exercise of a textbook (F = 2, whole backward 4): both definitions, each by its name."""
    costs = ("--forward", 2, "--backward-input", 2, "--backward-weight", 2)
    result = debubble(*COSTS, *costs, "-m", microbatches, "--schedule", schedule)
    words = " ".join(result.out.split())
    assert f"makespan {makespan}" in words
    assert f"bubble ratio {ratio}" in words
    assert f"idle fraction {fraction}" in words


@pytest.mark.parametrize(
    ("devices", "microbatches", "fraction"),
    [(4, 1, 75.0), (4, 4, 42.9), (4, 16, 15.8), (4, 32, 8.6), (4, 64, 4.5), (8, 64, 9.9)],
)
def test_idle_fractions_of_gpipe(debubble: Any, devices: int, microbatches: int, fraction: float) -> None:
    """The table of a textbook: (p - 1) / (m + p - 1)."""
    found = debubble(*COSTS, "--devices", devices, "-m", microbatches, "--schedule", "gpipe", "--json").json
    assert round(100 * found["idle_fraction"], 1) == fraction


def test_an_exercise_on_gpipe(debubble: Any) -> None:
    """Eight stages, forward 10 and backward 20, 64 micro-batches: 2130 in all, 90.1 % of it at work."""
    costs = ("--devices", 8, "--forward", 10, "--backward-input", 10, "--backward-weight", 10)
    found = debubble(*COSTS, *costs, "-m", 64, "--schedule", "gpipe", "--json").json
    assert found["makespan"] == 2130
    assert round(100 * (1 - found["idle_fraction"]), 1) == 90.1


def test_interleaved_takes_a_loop_by_itself(debubble: Any) -> None:
    """A named schedule brings the placement it was drawn for, two chunks per device."""
    found = debubble(*COSTS, "-m", 8, "--schedule", "interleaved", "--json").json
    assert found["stages"] == 8
    assert found["bubble_ratio"] == pytest.approx(0.1875)


@pytest.mark.parametrize(("microbatches", "flights"), [(8, [4, 3, 2, 1]), (2, [2, 2, 2, 1])])
def test_in_flight_microbatches_of_1f1b(debubble: Any, microbatches: int, flights: list[int]) -> None:
    """Device r holds min(m, p - r) micro-batches, and the table says so."""
    arguments = (*COSTS, "-m", microbatches, "--schedule", "1f1b")
    assert debubble(*arguments, "--json").json["in_flight"] == flights
    table = [line.split() for line in debubble(*arguments).out.splitlines()]
    header = next(i for i, words in enumerate(table) if words[:1] == ["device"])
    assert [int(words[4]) for words in table[header + 1 : header + 5]] == flights


def test_the_peak_stands_next_to_the_cap_of_each_device(debubble: Any) -> None:
    """With caps by device, the table shows both, and no peak is above its cap."""
    arguments = (*COSTS, "-m", 8, "--memory-cap", "4,4,4,2")
    table = [line.split() for line in debubble(*arguments).out.splitlines()]
    header = next(i for i, words in enumerate(table) if words[:1] == ["device"])
    rows = table[header + 1 : header + 5]
    assert [float(words[3]) for words in rows] == [4, 4, 4, 2]
    assert all(float(words[2]) <= float(words[3]) for words in rows)


def test_a_profile_file_and_its_units(debubble: Any, tmp_path: Path) -> None:
    """Costs come from the file, and numbers carry its units."""
    stage = {"forward": 2, "backward_input": 2, "backward_weight": 1}
    content = {"format": "debubble.profile/1", "stages": [stage] * 3, "time_unit": "ms", "memory_unit": "GiB"}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(content))
    result = debubble("compile", file, "-m", 6, "--schedule", "1f1b")
    assert result.status == 0
    assert " ms" in result.out
    assert " GiB" in result.out


def test_the_plan_is_saved_and_named(debubble: Any, tmp_path: Path) -> None:
    """-o writes a plan that loads again, and the JSON object names it."""
    path = tmp_path / "plan.json"
    found = debubble(*COSTS, "-m", 4, "--schedule", "zb-h1", "-o", path, "--json").json
    assert found["plan"] == str(path)
    assert Plan.load(path).timeline.makespan == found["makespan"]


def test_without_o_no_plan_is_named(debubble: Any) -> None:
    """The key is there and null."""
    assert debubble(*COSTS, "-m", 4, "--schedule", "gpipe", "--json").json["plan"] is None


def test_progress_is_silent_without_a_terminal(debubble: Any) -> None:
    """Standard error stays empty when it is captured."""
    assert debubble(*COSTS, "-m", 4).err == ""


def test_more_memory_is_said_against_1f1b(debubble: Any) -> None:
    """The summary tells what the plan gains over 1F1B, and for how much memory."""
    out = debubble(*COSTS, "-m", 8, "--schedule", "zb-h2").out
    assert "1f1b takes 33 and holds 4; this takes" in out
    assert "less time" in out


def test_warnings_of_the_search_are_told(debubble: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the search could not do is in the text and in the object, and the plan is there all the same."""
    real = search.search

    def warned(*arguments: Any, **options: Any) -> Plan:
        return replace(real(*arguments, **options), warnings=("no ILP solver: CBC is missing",))

    monkeypatch.setattr(search, "search", warned)
    arguments = (*COSTS, "-m", 4, "--schedule", "1f1b")
    assert debubble(*arguments, "--json").json["warnings"] == ["no ILP solver: CBC is missing"]
    result = debubble(*arguments)
    assert result.status == 0
    assert "no ILP solver: CBC is missing" in result.out


def test_an_unproved_plan_shows_bound_and_gap(debubble: Any) -> None:
    """1F1B is not the best there is: status feasible, with a bound below its value."""
    found = debubble(*COSTS, "-m", 8, "--schedule", "1f1b", "--memory-cap", 4, "--json").json
    assert found["status"] == "feasible"
    assert 0 < found["lower_bound"] < found["value"]
    assert found["gap"] == pytest.approx(found["value"] / found["lower_bound"] - 1)


def test_recomputation_is_counted(debubble: Any) -> None:
    """With --recompute all 1F1B holds one micro-batch's activations, and each backward takes a forward longer."""
    found = debubble(*COSTS, "-m", 8, "--schedule", "1f1b", "--recompute", "all", "--json").json
    assert (found["makespan"], found["peak_memory"]) == (44, [1, 1, 1, 1])
    assert debubble(*COSTS, "-m", 8, "--recompute", "some").status == 2


def test_some_micro_batches_are_recomputed(debubble: Any) -> None:
    """With --recompute 2 each device keeps two at most, and one more comes back while its backward runs."""
    some, everything = (
        debubble(*COSTS, "-m", 8, "--schedule", "1f1b", "--recompute", n, "--json").json for n in (2, "all")
    )
    assert (some["recompute"], everything["recompute"]) == (2, "all")
    assert some["peak_memory"] == [3, 3, 2, 1]
    assert some["makespan"] < everything["makespan"]


def test_a_small_group_is_shown_against_the_usual_one(debubble: Any) -> None:
    """Interleaved in groups smaller than the devices is allowed, and the report says what it costs."""
    costs = ("--devices", 4, "--chunks", 2, "--placement", "loop")
    costs += ("--forward", 1, "--backward-input", 1, "--backward-weight", 1)
    out = debubble("compile", *costs, "-m", 8, "--schedule", "interleaved", "--group-size", 2).out
    assert "interleaved takes 57" in out
    assert "more time" in out


def test_the_price_of_a_pair_is_stated(debubble: Any) -> None:
    """A schedule with overlapped pairs says what one takes, and which of its memory changes counts first."""
    costs = ("--devices", 4, "--forward", 1, "--backward-input", 1, "--backward-weight", 1)
    out = debubble("compile", *costs, "-m", 8, "--schedule", "dualpipe").out
    assert "the sum of its parts; its forward is held before its backward frees" in out
