"""`debubble tune`: the front of time against memory."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import debubble as package
from debubble.cache import Cache, digest
from debubble.candidates import Candidate, space
from debubble.compiler.errors import InputError
from debubble.compiler.plan import Plan
from debubble.compiler.profile import Profile
from debubble.front import floor
from debubble.tuning import tune

COSTS = ("--devices", 3, "--forward", 2, "--backward-input", 2, "--backward-weight", 2, "--time-limit", 3, "--jobs", 1)


def _profile(**more: Any) -> Profile:
    return Profile.uniform(stages=3, forward=2, backward_input=2, backward_weight=2, comm=0.5, **more)


@pytest.fixture(scope="module")
def front() -> dict[str, Any]:
    """A front of three devices and six micro-batches."""
    return tune(_profile(), microbatches=6, time_limit=4).as_json()


def test_less_memory_takes_more_time(front: dict[str, Any]) -> None:
    """No plan of the front is beaten by another."""
    memories = [point["memory"] for point in front["front"]]
    values = [point["value"] for point in front["front"]]
    assert memories == sorted(memories)
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values) > 1


def test_no_other_plan_beats_the_front(front: dict[str, Any]) -> None:
    """Whatever was found besides is slower than a plan of the front that holds no more."""
    for other in front["others"]:
        assert any(p["memory"] <= other["memory"] and p["value"] <= other["value"] + 1e-6 for p in front["front"])


def test_bounds_are_below_values(front: dict[str, Any]) -> None:
    """The floor of the whole space is at most the bound of the plan's own placement, and that at most its time."""
    for point in front["front"]:
        assert point["floor"] <= point["value"] * (1 + 1e-9)
        assert point["lower_bound"] <= point["value"] * (1 + 1e-9)


def test_no_candidate_is_counted_twice(front: dict[str, Any]) -> None:
    """Searched, dropped by a bound, or infeasible; on a busy machine some are not reached in the time given."""
    assert 0 < front["searched"] + front["dropped"] + front["infeasible"] <= front["candidates"]


def test_1f1b_is_beaten(front: dict[str, Any]) -> None:
    """Some plan of the front takes less time in no more memory."""
    yardstick = front["yardstick"]
    assert any(
        point["memory"] <= yardstick["memory"] and point["value"] < yardstick["value"] for point in front["front"]
    )


def test_without_a_cap_the_least_memory_near_the_fastest_is_recommended(front: dict[str, Any]) -> None:
    """And the reason is given."""
    point = front["front"][front["recommended"]]
    fastest = front["front"][-1]["value"]
    assert point["value"] <= fastest * 1.01
    assert all(p["value"] > fastest * 1.01 for p in front["front"] if p["memory"] < point["memory"])
    assert "of the fastest" in front["recommendation"] or "the fastest plan found" in front["recommendation"]


def test_with_a_cap_the_fastest_within_it_is_recommended(debubble: Any) -> None:
    """The table's last, which no longer holds more than the cap."""
    found = debubble("tune", *COSTS, "-m", 6, "--memory-cap", 2, "--json").json
    assert found["recommended"] == len(found["front"]) - 1
    assert max(point["memory"] for point in found["front"]) <= 2
    assert "the fastest plan found within the memory cap" in found["recommendation"]


def test_the_table_says_what_to_take(debubble: Any) -> None:
    """Front, account and recommendation, in eighty columns but for the command that makes the plan."""
    result = debubble("tune", *COSTS, "-m", 6)
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[0].split()[:3] == ["memory", "makespan", "placement"]
    assert any(line.startswith("Take ") for line in lines)
    assert max(len(line) for line in lines if " debubble compile " not in line) <= 80


@pytest.mark.parametrize("placement", ["linear", "loop", "v", "bidirectional"])
def test_the_command_for_the_plan_works(debubble: Any, tmp_path: Path, placement: str) -> None:
    """Without a cache it is printed, for costs on the command line and in a file, and is about the same problem."""
    _profile().save(tmp_path / "profile.json")
    costs = ("--devices", 3, "--forward", 2, "--backward-input", 2, "--backward-weight", 2, "--comm", 0.5)
    for given in (costs, (tmp_path / "profile.json",)):
        words = ("tune", *given, "-m", 6, "--placement", placement, "--caps", 1, "--time-limit", 1, "--jobs", 1)
        line = debubble(*words).out.splitlines()[-1]
        command = shlex.split(line.partition("debubble ")[2])
        made = debubble(*command[:-1], tmp_path / "plan.json", "--time-limit", 1)
        assert made.status == 0
        found = tune(_profile(), microbatches=6, placements=(placement,), caps=(1.0,), time_limit=0.5)
        assert Plan.load(tmp_path / "plan.json").problem == found.space.candidates[0].problem


def test_a_saved_plan_and_a_figure_are_named(debubble: Any, tmp_path: Path) -> None:
    """And the command to look at the plan works."""
    figure = tmp_path / "front.svg"
    out = debubble("tune", *COSTS, "-m", 4, "--caps", 1, "--cache", tmp_path / "plans", "-o", figure).out
    assert f"drawn as {figure}\n" in out
    assert debubble(*shlex.split(out.splitlines()[-1].partition("debubble ")[2])).status == 0


def test_an_interrupt_before_the_first_plan_is_said(
    debubble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, and the status tells that there is nothing."""

    def interrupted(*arguments: Any, **options: Any) -> Plan:
        raise KeyboardInterrupt

    monkeypatch.setattr("debubble.tuning.search", interrupted)
    result = debubble("tune", *COSTS, "-m", 4, "--cache", tmp_path / "plans", "-o", tmp_path / "front.svg")
    assert result.status == 1
    assert "No plan was found before the interrupt." in result.out
    assert list(tmp_path.iterdir()) == []


def test_a_cache_is_gone_on_from(debubble: Any, tmp_path: Path) -> None:
    """The second call finds the plans of the first, and is no worse."""
    words = ("tune", *COSTS, "-m", 6, "--cache", tmp_path, "--json")
    first = debubble(*words).json
    paths = [point["plan"] for point in first["front"]]
    assert all(Plan.load(path).value == point["value"] for path, point in zip(paths, first["front"], strict=True))
    second = debubble(*words, "--time-limit", 0.01).json
    assert [point["value"] for point in second["front"]] == [point["value"] for point in first["front"]]


def test_a_changed_file_in_the_cache_is_not_believed(tmp_path: Path) -> None:
    """A plan is proved again when it is loaded; one that fails is as good as none."""
    found = tune(_profile(), microbatches=4, caps=(1.0,), placements=("linear",), time_limit=2, cache=tmp_path)
    point = found.points[0]
    assert point.path is not None
    content = json.loads(Path(point.path).read_text())
    content["certificate"]["lower_bound"] *= 0.5
    Path(point.path).write_text(json.dumps(content))
    assert Cache(tmp_path).load(point.plan.problem) is None


def test_a_cache_that_cannot_be_made_is_refused(debubble: Any, tmp_path: Path) -> None:
    """Before the search, not after it."""
    (tmp_path / "file").write_text("")
    result = debubble("tune", *COSTS, "-m", 6, "--cache", tmp_path / "file" / "cache")
    assert result.status == 2
    assert "cannot make the directory" in result.err


def test_another_cap_is_another_problem() -> None:
    """Nothing in the cache is taken for what it is not."""
    digests = {digest(candidate.problem) for candidate in space(_profile(), microbatches=(6, 3)).candidates}
    assert len(digests) == len(space(_profile(), microbatches=(6, 3)).candidates)


def test_an_interrupt_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front has the plans of the searches before it."""
    import debubble.tuning as module

    real, calls = module.search, []

    def interrupted(*arguments: Any, **options: Any) -> Plan:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, "search", interrupted)
    found = tune(_profile(), microbatches=4, time_limit=3)
    assert found.interrupted
    assert len(found.points) + len(found.others) == 2


def test_processes_find_a_front(debubble: Any) -> None:
    """Two of them share the searches."""
    found = debubble("tune", *COSTS, "-m", 4, "--jobs", 2, "--placement", "linear,v", "--json").json
    assert {point["placement"] for point in found["front"] + found["others"]} == {"linear", "v"}


def test_other_counts_of_microbatches_keep_the_global_batch() -> None:
    """Half as many micro-batches are twice as large."""
    found = space(_profile(), microbatches=(8, 4), placements=("linear",), caps=(1.0,)).candidates
    assert [(c.problem.microbatches, c.problem.profile.stages[0].forward) for c in found] == [(8, 2), (4, 4)]


def test_work_per_device_is_held_fixed() -> None:
    """With two chunks each stage has half."""
    found = space(_profile(), microbatches=(8,), placements=("v",), caps=(1.0,)).candidates
    assert [stage.forward for stage in found[0].problem.profile.stages] == [1.0] * 6


def test_caps_are_multiples_of_what_1f1b_holds() -> None:
    """Three micro-batches on the first of three devices."""
    found = space(_profile(), microbatches=(8,), placements=("linear",), caps=(0.5, 2.0)).candidates
    assert [candidate.cap for candidate in found] == [1.5, 6.0]


def test_recomputation_is_tried_where_inputs_are_known() -> None:
    """The input of a stage stays; where its size is unknown it would count as nothing."""
    known = Profile(
        stages=tuple(
            package.Stage(forward=2, backward_input=2, backward_weight=2, output_bytes=0.25 * 2**20) for _ in range(2)
        ),
        memory_unit="MiB",
    )
    assert {c.problem.recompute for c in space(known, microbatches=(4,)).candidates} == {"none", "all"}
    assert {c.problem.recompute for c in space(_profile(), microbatches=(4,)).candidates} == {"none"}


def test_a_bound_under_a_larger_cap_holds_under_a_smaller_one() -> None:
    """The floor of some memory takes the best of all bounds at or above it, and the least of the families."""
    linear = _candidates("linear")
    v = _candidates("v")
    bounds = {linear[0]: 30.0, linear[1]: 40.0, v[0]: 36.0, v[1]: 20.0}
    assert floor(linear[0].cap, bounds) == 36.0
    assert floor(linear[1].cap, bounds) == 20.0


def _candidates(placement: str) -> tuple[Candidate, ...]:
    return space(_profile(), microbatches=(6,), placements=(placement,), caps=(1.0, 2.0)).candidates


def test_caps_that_nothing_fits(debubble: Any) -> None:
    """Are infeasible, as for compile, and the least that would do is told."""
    found = debubble("tune", *COSTS, "-m", 4, "--memory-cap", 0.25, "--json")
    assert found.status == 1
    assert found.json["status"] == "infeasible"
    assert max(found.json["least_cap"]) == 1


def test_weights_that_are_not_known_are_said(debubble: Any) -> None:
    """A second copy of them would cost nothing in the table."""
    out = debubble("tune", *COSTS, "-m", 4, "--placement", "bidirectional", "--caps", 1).out
    assert "note: bidirectional placements hold all weights twice" in out


def test_a_figure_is_written(debubble: Any, tmp_path: Path) -> None:
    """With the units on its axes."""
    path = tmp_path / "front.svg"
    assert debubble("tune", *COSTS, "-m", 4, "-o", path).status == 0
    assert "memory of the fullest device" in path.read_text()


def test_a_figure_has_a_format(debubble: Any, tmp_path: Path) -> None:
    """Its name says which."""
    assert debubble("tune", *COSTS, "-m", 4, "-o", tmp_path / "front.jpeg").status == 2


def test_layers_are_gathered_anew_for_each_placement() -> None:
    """A profile of more stages than devices counts as layers: none is lost, and chunks are not halves of stages."""
    layers = Profile(
        stages=tuple(package.Stage(forward=f, backward_input=f, backward_weight=f) for f in (3, 1, 1, 1, 1, 1))
    )
    found = space(layers, devices=2, microbatches=(4,), placements=("linear", "v"), caps=(1.0,)).candidates
    costs = {str(c.problem.placement): [stage.forward for stage in c.problem.profile.stages] for c in found}
    assert costs == {"linear": [4, 4], "v": [3, 2, 2, 1]} or costs == {"linear": [4, 4], "v": [3, 1, 2, 2]}


def test_layers_need_a_number_of_devices(debubble: Any, tmp_path: Path) -> None:
    """Which a table does not say."""
    path = tmp_path / "layers.csv"
    path.write_text("name,forward,backward_input,backward_weight\na,1,1,1\nb,1,1,1\n")
    assert debubble("tune", path, "-m", 4).status == 2
    assert debubble("tune", path, "-m", 4, "--devices", 2, "--placement", "linear", "--time-limit", 1).status == 0


def test_a_second_profile_is_cut_as_the_first() -> None:
    """Whatever its own costs would suggest: half the size costs what the second says."""
    first = Profile(stages=tuple(package.Stage(forward=f, backward_input=1, backward_weight=1) for f in (4, 4, 4, 4)))
    second = Profile(stages=tuple(package.Stage(forward=f, backward_input=1, backward_weight=1) for f in (9, 3, 3, 3)))
    found = space(
        first, devices=2, microbatches=(4, 8), second=(second, 8), placements=("linear",), caps=(1.0,)
    ).candidates
    assert [[stage.forward for stage in c.problem.profile.stages] for c in found] == [[8, 8], [12, 6]]


def test_a_second_profile_has_as_many_stages() -> None:
    """Both numbers are told."""
    two = Profile.uniform(stages=2, forward=3, backward_input=3, backward_weight=3)
    with pytest.raises(InputError, match="the second profile has 2 stages, the first 3"):
        space(_profile(), microbatches=(8,), second=(two, 16))


@pytest.mark.parametrize(
    "more",
    [{"microbatches": ()}, {"placements": ()}, {"caps": ()}, {"microbatches": (4, 0)}, {"second": (_profile(), 4)}],
)
def test_requests_that_make_no_sense_are_refused(more: dict[str, Any]) -> None:
    """Nothing to choose from, no micro-batches, a second profile that is no second."""
    with pytest.raises(InputError):
        space(_profile(), **{"microbatches": (4, 2)} | more)
