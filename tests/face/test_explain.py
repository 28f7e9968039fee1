"""`debubble explain`: what binds a plan, what would help, and how it bears jitter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import debubble as face
from debubble.compiler import placement
from debubble.explanation import balanced, bearing, changed_problems, explain, robust, with_links


def uneven(**options: Any) -> face.Problem:
    """Three stages, the middle one twice as heavy."""
    stages = tuple(face.Stage(forward=2 * k, backward_input=2 * k, backward_weight=k) for k in (1, 2, 1))
    return face.Problem(face.Profile(stages=stages, comm=1.0), placement.linear(3), 4, **options)


def test_the_json_keys(debubble: Any, plan: str) -> None:
    """Value, bound with its reason, idle time by cause, and the changes that were searched."""
    found = debubble("explain", plan, "--time-limit", 0.5, "--json").json
    assert (found["value"], found["lower_bound"], found["devices_at_cap"]) == (283, 265, [])
    assert set(found["idle"][0]) == {"warm-up", "dependency", "transfer", "memory", "order", "drain"}
    assert [change["change"] for change in found["changes"]] == ["a link 10 % faster"]
    assert found["jitter"]["p50"] < found["jitter"]["p95"]


def test_more_memory_is_searched_again() -> None:
    """One activation more lets the search go from 283 to 269, and its bound says that this is all."""
    profile = face.Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1)
    plan = face.compile(profile, microbatches=8, memory_cap=4, time_limit=10)
    found = explain(plan, time_limit=10)
    memory = found.changes[0]
    assert "1 more memory" in memory.name
    assert (plan.value, memory.value, memory.lower_bound) == (283, 269, 269)
    assert found.full == [0, 1, 2, 3]
    assert "is memory" in found.analysis.sentences()[0]


def test_more_of_anything_is_never_worse() -> None:
    """Every change is searched from the plan's own order: however short the search, nothing gets worse by it."""
    profile = face.Profile.uniform(
        stages=8, forward=10, backward_input=11, backward_weight=8, comm=1, memory=(2, -1, -1)
    )
    plan = face.compile(profile, microbatches=16, memory_cap=9, time_limit=3)
    found = explain(plan, time_limit=0.1)
    assert found.found <= plan.value
    assert all(change.lower_bound <= change.value <= found.found for change in found.changes)


def test_no_slack_is_more_than_the_critical_path() -> None:
    """Every operation of the critical path is among those without slack."""
    profile = face.Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    found = explain(face.compile(profile, microbatches=8, schedule="1f1b", time_limit=0.3), time_limit=0.2)
    assert all(found.critical[kind] <= found.tight[kind] for kind in ("F", "BW"))
    assert found.found <= found.plan.value


def test_balanced_stages_share_the_work() -> None:
    """The same work in levelled stages: 4/3 of the light stage's each, and the whole is kept."""
    level = balanced(uneven()).profile.stages
    assert [stage.forward for stage in level] == pytest.approx([8 / 3] * 3)
    assert sum(stage.fused for stage in level) == pytest.approx(12)


def test_only_what_can_change_is_asked() -> None:
    """Without a cap there is no question of memory, without transfers none of the link, and level stages stay."""
    names = [name for name, _ in changed_problems(uneven(memory_cap=3.0))]
    assert len(names) == 3
    profile = face.Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1)
    assert not list(changed_problems(face.Problem(profile, placement.linear(2), 4)))


@pytest.mark.parametrize("comm", [10.0, face.Link(latency=4.0, bandwidth=2.0), ((0.0, 10.0), (10.0, 0.0))])
def test_a_faster_link_in_every_form(comm: Any) -> None:
    """A number, latency and bandwidth, or a matrix: a transfer of 10 takes 9 on a link ten percent faster."""
    stages = (face.Stage(forward=1, backward_input=1, backward_weight=1, output_bytes=12.0),) * 2
    problem = face.Problem(face.Profile(stages=stages, comm=comm), placement.linear(2), 2)
    faster = with_links(problem, lambda time: 0.9 * time)
    assert problem.transfer(0, 1, 0) == pytest.approx(10)
    assert faster.transfer(0, 1, 0) == pytest.approx(9)


def test_the_robust_order_bears_jitter_at_least_as_well(tmp_path: Path) -> None:
    """Its 95th percentile is at most the plan's, and it is a plan that loads."""
    profile = face.Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1)
    plan = face.compile(profile, microbatches=8, schedule="gpipe")
    better = robust(plan, spread=0.2, time_limit=2)
    assert bearing(better.timeline, spread=0.2).p95 < bearing(plan.timeline, spread=0.2).p95
    better.save(tmp_path / "plan.json")
    assert face.Plan.load(tmp_path / "plan.json").value == better.value


def test_the_text_says_who_waits_and_why(debubble: Any, plan: str) -> None:
    """Which device waits most, for what, and what would help, in words."""
    out = debubble("explain", plan, "--time-limit", 0.2).out
    assert "waits most" in out
    assert "Critical path: " in out
    assert "a link 10 % faster" in out
    assert "p95" in out


@pytest.mark.parametrize(("words", "part"), [(("--spread", 2), "between 0 and 1"), (("-o", "x.json"), "add --robust")])
def test_bad_requests_are_refused(debubble: Any, plan: str, words: tuple, part: str) -> None:
    """A spread above 1, and a place for a plan that was not asked for."""
    result = debubble("explain", plan, *words)
    assert result.status == 2
    assert part in result.err
