"""Plans: they read back as they were, and nothing changed in the file goes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.errors import CertificateError, DebubbleError, InputError, InvalidScheduleError
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan, read
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile

NO_BOUND = Certificate(lower_bound=0.0, name="none", proof="solver")


def plan(name: str = "1f1b", p: int = 2, m: int = 3, memory_cap: float | None = None) -> Plan:
    profile = Profile.uniform(stages=p, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(p), m, memory_cap)
    return Plan.build(problem, named_schedule(name, problem), NO_BOUND)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(problem=problems())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, problem: Problem) -> None:
    """A saved plan loads with the same problem, orders, streams and digest."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    made = Plan.build(problem, named_schedule("gpipe", problem), NO_BOUND)
    made.save(path)
    loaded = Plan.load(path)
    assert (loaded.schedule, loaded.streams, loaded.digest) == (made.schedule, made.streams, made.digest)
    assert loaded.problem.caps == problem.caps


def test_over_the_cap_is_refused() -> None:
    """A schedule that holds more than the cap never becomes a plan."""
    with pytest.raises(InvalidScheduleError, match="over-cap"):
        plan("gpipe", memory_cap=2)


def test_a_bound_above_the_value_is_refused() -> None:
    """What is better than a bound allows shows that the bound is false, not that the schedule is optimal."""
    made = plan()
    false = Certificate(lower_bound=made.value + 1, name="none", proof="solver")
    with pytest.raises(CertificateError, match="is above the value"):
        Plan.build(made.problem, made.schedule, false)


CHANGES = {
    "an operation dropped": ("missing-operation", lambda c: c["orders"].__setitem__(0, "0F0 0F1 0BW0 0F2 0BW1")),
    "two swapped": ("wrong-order", lambda c: c["orders"].__setitem__(1, "1BW0 1F0 1F1 1BW1 1F2 1BW2")),
    "a stream reordered": ("stream-order", lambda c: c["streams"][0].insert(0, c["streams"][0].pop(2))),
    "a send dropped": ("unmatched-receive", lambda c: c["streams"][0].remove("send 0F0 >1")),
    "a cap below the peak": ("over-cap", lambda c: c.__setitem__("memory_cap", [1, 1])),
    "a better makespan": ("false-claim", lambda c: c.__setitem__("makespan", 1)),
    "no peaks": ("false-claim", lambda c: c.__setitem__("peak_memory", [])),
    "a lower peak": ("false-claim", lambda c: c.__setitem__("peak_memory", [1, 1])),
    "a bound above the value": ("false-claim", lambda c: c["certificate"].__setitem__("lower_bound", 99)),
    "a proof of another name": ("false-certificate", lambda c: c["certificate"].update(proof="Checked", lower_bound=1)),
    "nobody's word": ("false-certificate", lambda c: c["certificate"].update(proof="solver", lower_bound=1)),
    "a wait too many": ("duplicate-wait", lambda c: c["streams"][0].insert(-1, "wait 1B0")),
    "another cost": ("digest", lambda c: c["profile"].__setitem__("comm", 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(tmp_path: Path, change: str) -> None:
    """A plan file that was changed by hand is reported by what is wrong with it, and never loads."""
    code, apply = CHANGES[change]
    path = tmp_path / "plan.json"
    plan().save(path)
    content = json.loads(path.read_text())
    apply(content)
    path.write_text(json.dumps(content))
    report = read(path).report
    assert code in {diagnostic.code for diagnostic in report.errors}
    with pytest.raises(InvalidScheduleError):
        Plan.load(path)


PLACES = {
    "a send dropped": (1, "recv 0F0 <0"),
    "an operation dropped": (0, "0F0 0F1"),
    "a better makespan": (None, "1.0"),
    "a bound above the value": (None, "99"),
    "a stream reordered": (0, "0F1"),
}


@pytest.mark.parametrize("change", PLACES)
@pytest.mark.parametrize("indent", [None, 2])
def test_errors_have_a_place_in_the_file(tmp_path: Path, change: str, indent: int | None) -> None:
    """What is wrong in a plan file is where line and column point, however the file is laid out."""
    code, apply = CHANGES[change]
    path = tmp_path / "plan.json"
    plan().save(path)
    content = json.loads(path.read_text())
    apply(content)
    path.write_text(json.dumps(content, indent=indent).replace('"makespan": 1,', '"makespan": 1.0,'))
    error = next(error for error in read(path).report.errors if error.code == code)
    device, pointed = PLACES[change]
    assert error.device == device
    line = path.read_text().splitlines()[error.line - 1]
    assert line[error.column - 1 :].lstrip('"').startswith(pointed)


def test_cut_anywhere_is_an_error_in_words(tmp_path: Path) -> None:
    """A plan file cut short at any byte is refused, never a traceback."""
    path = tmp_path / "plan.json"
    plan("1f1b", 2, 1).save(path)
    content = path.read_bytes().rstrip()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DebubbleError):
            Plan.load(path)


def test_unknown_keys_and_tokens_are_named(tmp_path: Path) -> None:
    """A strange key or instruction is refused by name."""
    path = tmp_path / "plan.json"
    plan().save(path)
    content = json.loads(path.read_text())
    for key, value, part in (
        ("colour", "colour", "colour"),
        ("orders", ["0F0 0X1", ""], "0X1"),
        ("streams", [["jump"], []], "jump"),
    ):
        path.write_text(json.dumps(content | {key: value}))
        with pytest.raises(InputError, match=part) as found:
            Plan.load(path)
        assert part in path.read_text()[found.value.column - 1 :][:20]


def test_summary_says_value_bound_and_peak() -> None:
    """Printing a plan shows what a user asks first."""
    text = str(plan("1f1b", 4, 8, memory_cap=4))
    for part in ("makespan     33", "37.50%", "4/4 3/4 2/4 1/4", "27.27%"):
        assert part in text
