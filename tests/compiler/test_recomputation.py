"""Recomputation: who is chosen, and what is counted for time and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stages

from debubble.compiler import placement
from debubble.compiler.errors import InputError
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.placement import Placement
from debubble.compiler.plan import Plan, read
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.recomputation import Recompute, windows
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.compiler.verification import verify
from debubble.solver.search import certified

UNIT = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)


def unit(recompute: Recompute, microbatches: int = 8) -> Problem:
    return Problem(UNIT, placement.linear(4), microbatches, recompute=recompute)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (placement.linear(4), (4, 3, 2, 1)),
        (placement.explicit((2, 0, 1)), (3, 2, 1)),
        (placement.bidirectional(4), (4, 3, 2, 1)),
        (placement.loop(4), (11, 9, 7, 5, 11, 9, 7, 5)),
        (placement.v(2), (5, 3, 3, 5)),
        (placement.explicit((1, 0, 0)), (3, 3, 3)),
    ],
    ids=str,
)
def test_windows_are_the_warm_up_and_one(place: Placement, expected: tuple[int, ...]) -> None:
    """1F1B's with one stage per device, else interleaved 1F1B's (Megatron-LM)."""
    assert windows(place) == expected


def test_stages_with_more_in_flight_recompute_more() -> None:
    """Every stage keeps at most two of a window whole, as Megatron-LM does with two partial checkpoints: of windows of
    four, three, two and one, it recomputes two, one and none."""
    problem = unit(2)
    chosen = [[j for j in range(8) if problem.recomputes(stage, j)] for stage in range(4)]
    assert chosen == [[2, 3, 6, 7], [2, 5], [], []]


def test_each_direction_is_counted_from_its_own_first() -> None:
    """In a bidirectional placement the second half begins anew."""
    problem = Problem(UNIT, placement.bidirectional(4), 7, recompute=2)
    assert [j for j in range(7) if problem.recomputes(1, j)] == [2, 6]


@pytest.mark.parametrize(("number", "word"), [(0, "none"), (4, "all"), (100, "all")])
def test_no_and_many_micro_batches_are_none_and_all(number: int, word: str) -> None:
    """From the largest window on all are recomputed."""
    assert unit(number).chosen == unit(word).chosen


@pytest.mark.parametrize("recompute", ["some", -1, 1.5, True])
def test_anything_else_is_refused(recompute: Recompute) -> None:
    """In words."""
    with pytest.raises(InputError, match="unknown recomputation"):
        unit(recompute)


def test_a_backward_takes_a_forward_longer() -> None:
    """Of the micro-batches that are recomputed, fused and split."""
    problem = unit(1)
    durations = [[problem.duration(Operation(kind, 0, j)) for kind in ("F", "B", "W", "BW")] for j in (3, 2)]
    assert durations == [[1, 2, 1, 3], [1, 1, 1, 2]]


def true_peaks(problem: Problem, schedule: Schedule) -> list[float]:
    """The peak of every device, with what is held for each stage and micro-batch noted moment by moment."""
    peaks = []
    for device, order in enumerate(schedule.orders):
        held: dict[tuple[int, int], float] = {}
        peak = problem.static_memory[device]

        def total(static: float = peak, held: dict[tuple[int, int], float] = held) -> float:
            return static + sum(held.values())

        for kind, stage, microbatch in order:
            key, memory = (stage, microbatch), problem.profile.stages[stage].memory
            if kind == "F":
                held[key] = 0.0 if problem.recomputes(stage, microbatch) else memory.forward
            elif kind == "B":
                held[key] = memory.forward + max(0.0, memory.backward_input)
                peak = max(peak, total())
                held[key] = memory.forward + memory.backward_input
            elif kind == "BW":
                held[key] = memory.forward
                peak = max(peak, total())
            peak = max(peak, total())
            if kind in ("W", "BW"):
                del held[key]
        peaks.append(peak)
    return peaks


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    held=st.lists(stages(), min_size=2, max_size=4),
    name=st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    backward=st.sampled_from(["any", "split"]),
    recompute=st.sampled_from(["none", "all", 1, 2]),
)
def test_the_counted_peak_is_the_true_one(held: list[Stage], name: str, backward: str, recompute: Recompute) -> None:
    """What a backward brings back is there while it runs, and at no other time."""
    profile = Profile(stages=tuple(held))
    problem = Problem(profile, placement.linear(len(held)), 5, backward=backward, recompute=recompute)
    schedule = named_schedule(name, problem)
    assert simulate(problem, schedule).peak_memory == pytest.approx(true_peaks(problem, schedule))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(problems())
def test_the_verifier_allows_the_peak_and_nothing_below(problem: Problem) -> None:
    """Verification and simulation count the same."""
    schedule = named_schedule("gpipe", problem)
    peaks = simulate(problem, schedule).peak_memory
    assert verify(replace(problem, memory_cap=tuple(peaks)), schedule).valid
    for device, peak in enumerate(peaks):
        if peak > problem.static_memory[device]:
            caps = tuple(0.999 * other if d == device else other for d, other in enumerate(peaks))
            assert [e.code for e in verify(replace(problem, memory_cap=caps), schedule).errors] == ["over-cap"]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_fused_schedule_holds_one_forward(name: str) -> None:
    """With full recomputation GPipe and 1F1B hold one micro-batch's activations, and a backward takes F longer."""
    problem = unit("all")
    timeline = simulate(problem, named_schedule(name, problem))
    assert timeline.peak_memory == [1, 1, 1, 1]
    assert timeline.makespan == (8 + 3) * 4


def test_the_input_is_kept() -> None:
    """Between F and B a stage holds the output of the one before, in the profile's unit of bytes."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=Memory(8, 0, -8), output_bytes=2 * 2**20)
    problem = Problem(Profile(stages=(stage, stage), memory_unit="MiB"), placement.linear(2), 1, recompute="all")
    kept = [[problem.memory(Operation(kind, s, 0)) for kind in ("F", "B", "W", "BW")] for s in range(2)]
    assert kept == [[(0, 0), (8, 8), (0, -8), (8, 0)], [(2, 2), (6, 6), (0, -8), (6, -2)]]


def test_an_input_larger_than_the_activations_is_refused() -> None:
    """Where nothing is saved there is nothing to recompute."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=Memory(1, 0, -1), output_bytes=2**21)
    profile = Profile(stages=(stage, stage), memory_unit="MiB")
    with pytest.raises(InputError, match=r"stages\[1\].*nothing to recompute"):
        Problem(profile, placement.linear(2), 2, recompute=1)


@pytest.mark.parametrize("recompute", ["none", "all", 2])
def test_a_plan_holds_the_choice(recompute: Recompute, tmp_path: str) -> None:
    """A plan is read back as the same problem, and is valid."""
    problem = unit(recompute)
    certified(problem, named_schedule("1f1b", problem), time_limit=1).save(f"{tmp_path}/plan.json")
    reading = read(f"{tmp_path}/plan.json")
    assert (reading.plan.problem.chosen, reading.report.errors) == (problem.chosen, [])


def test_another_choice_in_the_file_is_noticed(tmp_path: str) -> None:
    """What the plan claims would not be true of it."""
    problem = unit(2)
    path = f"{tmp_path}/plan.json"
    certified(problem, named_schedule("1f1b", problem), time_limit=1).save(path)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace('"recompute": 2', '"recompute": 3'))
    assert {error.code for error in read(path).report.errors} >= {"digest", "false-claim"}


def test_the_summary_says_what_is_recomputed() -> None:
    """And how much of all forwards that is."""
    problem = unit(2)
    plan: Plan = certified(problem, named_schedule("1f1b", problem), time_limit=1)
    assert "recompute    2 of the micro-batches in flight where most are, 19% of all forwards" in str(plan)
    assert plan.as_json()["recompute"] == 2
