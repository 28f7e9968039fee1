"""The search: values, proofs, limits and what it says when something is missing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from instances import INSTANCES, Instance
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.certificate import check
from debubble.compiler.errors import InfeasibleError, InputError, InvalidScheduleError
from debubble.compiler.named import NAMED, named_schedule
from debubble.compiler.plan import read
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.compiler.simulation import simulate
from debubble.solver import search as module
from debubble.solver.backend import BackendMissingError
from debubble.solver.search import search

QUICK = [
    instance
    for instance in INSTANCES
    if instance.name
    in {
        "linear-4x8-cap8-makespan",
        "linear-4x8-cap16-span",
        "linear-4x12-cap8-makespan",
        "linear-8x16-cap16-makespan",
        "linear-6x12-cap12-makespan",
        "unit-4x8",
        "unit-held-to-W-cap4",
        "two-devices",
        "toy-cap14-makespan",
    }
]


def linear(p: int, m: int, costs: tuple[float, float, float], comm: float = 0, **options: object) -> Problem:
    memory = options.pop("memory", (1, 0, -1))
    forward, backward_input, backward_weight = costs
    profile = Profile.uniform(
        stages=p,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        comm=comm,
        memory=memory,  # type: ignore[arg-type]
    )
    return Problem(profile, placement.linear(p), m, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("instance", QUICK, ids=str)
def test_known_optima_are_found_and_proved(instance: Instance) -> None:
    """The value of an independent exact solver, with a bound that the checker recomputes."""
    plan = search(instance.problem(), time_limit=60)
    assert plan.value == pytest.approx(instance.optimum)
    assert (plan.status, plan.certificate.proof) == ("optimal", "checked")
    assert check(plan.problem, plan.certificate) == pytest.approx(instance.optimum)


@settings(derandomize=True, deadline=None, max_examples=12)
@given(problem=problems(most_devices=3, most_microbatches=4))
def test_never_worse_than_a_named_schedule(problem: Problem) -> None:
    """The search is at most every named schedule that exists and fits (here without a cap), and at least its bound."""
    plan = search(problem, time_limit=1.5)
    for name in NAMED:
        try:
            schedule = named_schedule(name, problem)
        except InputError:
            continue
        assert plan.value <= simulate(problem, schedule).value * (1 + 1e-9), name
    assert plan.certificate.lower_bound <= plan.value * (1 + 1e-9)


def test_same_seed_same_plan() -> None:
    """Two runs that end before their limit give the same plan."""
    problem = linear(4, 8, (10, 11, 8), 1, memory=(2, -1, -1), memory_cap=8)
    assert search(problem, seed=3).digest == search(problem, seed=3).digest


def test_each_cap_is_kept() -> None:
    """Caps of 4, 4, 4 and 2 activations on four devices: no device goes over its own."""
    plan = search(linear(4, 8, (1, 1, 1), memory_cap=(4, 4, 4, 2)), time_limit=5)
    assert all(peak <= cap for peak, cap in zip(plan.timeline.peak_memory, (4, 4, 4, 2), strict=True))


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_two_stages_with_a_transfer(objective: str) -> None:
    """p=2, m=4, costs 2/3/1, transfer 1, no cap: 28 by makespan and by span (exact), where 1F1B takes 34."""
    problem = linear(2, 4, (2, 3, 1), 1, objective=objective)
    assert search(problem, time_limit=20).value == 28
    assert search(problem, schedule="1f1b").timeline.makespan == 34


@pytest.mark.parametrize(
    ("cap", "objective", "value"), [(5, "makespan", 34), (5, "span", 34), (9, "makespan", 34), (9, "span", 30)]
)
def test_five_devices_without_a_bubble(cap: float, objective: str, value: float) -> None:
    """p=5, m=10, unit costs (exact): with 2p - 1 activations no device waits between its first and last operation."""
    plan = search(linear(5, 10, (1, 1, 1), memory_cap=cap, objective=objective), time_limit=60)
    assert (plan.value, plan.gap) == (value, 0)


@pytest.mark.parametrize(
    ("p", "m", "costs", "comm", "cap", "known"),
    [
        (8, 32, (29850, 29767, 18868), 466, 32, 2517463),
        (4, 12, (5478, 5806, 3534), 200, 32, 178898),
    ],
)
def test_measured_uniform_profiles(
    p: int, m: int, costs: tuple[float, ...], comm: float, cap: float, known: float
) -> None:
    """By span, at most what the zero-bubble authors' search finds for their profiles (ZBP-B, and a small one)."""
    problem = linear(p, m, costs, comm, memory=(2, -1, -1), memory_cap=cap, objective="span")  # type: ignore[arg-type]
    assert sum(costs) * m <= search(problem, time_limit=2).value <= known


def test_time_limit_is_kept_and_said() -> None:
    """A problem too large to prove ends by the limit, as feasible, with bound and gap."""
    problem = linear(8, 32, (10, 11, 8), 1, memory=(2, -1, -1), memory_cap=9)
    start = time.monotonic()
    plan = search(problem, time_limit=4)
    assert time.monotonic() - start < 6  # the limit and a busy machine
    assert plan.status == "feasible"
    assert 0 < plan.gap < 1


def test_impossible_cap_is_refused() -> None:
    """Below one activation there is no schedule, and the least cap is named."""
    with pytest.raises(InfeasibleError, match="needs at least 2"):
        search(linear(4, 4, (1, 1, 1), memory=(2, -1, -1), memory_cap=1))


def test_named_schedule_over_the_cap_is_refused() -> None:
    """GPipe under a cap of 1F1B's memory is invalid, not silently replaced."""
    with pytest.raises(InvalidScheduleError, match="over-cap"):
        search(linear(4, 8, (1, 1, 1), memory_cap=4), schedule="gpipe")


def test_a_missing_solver_costs_the_ilp_and_not_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CBC the plan comes from constructions and local search, with a warning."""

    def missing(*_: object, **__: object) -> None:
        raise BackendMissingError("CBC is not installed")

    monkeypatch.setattr(module, "solve_exact", missing)
    monkeypatch.setattr(module, "improve_by_neighbourhoods", missing)
    plan = search(linear(8, 16, (10, 11, 8), 1, memory=(2, -1, -1), memory_cap=12), time_limit=3)
    assert any("no ILP solver" in warning for warning in plan.warnings)
    assert plan.status == "feasible"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [({"backend": "gurobi"}, "unknown back end"), ({"time_limit": 0}, "time limit"), ({"schedule": "zb-h9"}, "zb-h1")],
)
def test_bad_requests_are_refused_in_words(arguments: dict, part: str) -> None:
    """An unknown back end or schedule and a limit of nothing are named."""
    with pytest.raises(InputError, match=part):
        search(linear(2, 2, (1, 1, 1)), **arguments)


def test_a_plan_without_durations_is_proved_again(tmp_path: Path) -> None:
    """Where nothing takes any time, 0 is optimal, and the plan's own check agrees."""
    search(linear(2, 3, (0, 0, 0)), time_limit=2).save(tmp_path / "plan.json")
    assert read(tmp_path / "plan.json")[1].errors == []


def test_a_bound_off_the_grid_of_ticks_is_not_rounded_up() -> None:
    """Where costs are no whole ticks, exact search never claims more than the value of a valid schedule."""
    stage = Stage(forward=1.9929659318318615, backward_input=1, backward_weight=2, backward=2.4000000000000004)
    problem = Problem(Profile(stages=(stage,) * 3), placement.bidirectional(3), 2)
    value = search(problem, time_limit=5).value
    found = module.solve_exact(
        problem, named_schedule("gpipe", problem), value, deadline=time.monotonic() + 5, backend="cbc"
    )
    assert found.lower_bound <= value


def test_each_microbatch_counts_with_its_own_factor() -> None:
    """One micro-batch without work must not make the bound of all the others worthless."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1)
    profile = Profile(stages=(stage, stage), microbatches=(0.0, *[1.0] * 19))
    assert search(Problem(profile, placement.linear(2), 20), time_limit=2).certificate.lower_bound >= 57 * (1 - 1e-9)


def test_an_interrupt_keeps_what_was_found() -> None:
    """Ctrl-C ends a search, and the best plan found until then is returned with a warning."""

    def interrupt(elapsed: float, best: float | None, bound: float | None) -> None:
        if best is not None:
            raise KeyboardInterrupt

    plan = search(linear(4, 8, (10, 11, 8), 1, memory_cap=3), report=interrupt)
    assert plan.value < float("inf")
    assert "interrupted" in plan.warnings[0]


def test_a_search_goes_on_from_a_plan() -> None:
    """It is no worse than the plan it starts from, and its bound no weaker, however short the time."""
    problem = linear(4, 12, (10, 11, 8), 1, memory_cap=3)
    first = search(problem, time_limit=3)
    second = search(problem, time_limit=0.01, start=first)
    assert second.value <= first.value
    assert second.certificate.lower_bound >= first.certificate.lower_bound


def test_a_plan_over_the_cap_is_no_start() -> None:
    """Neither its schedule nor its bound is taken over."""
    large = search(linear(4, 8, (10, 11, 8), 1, memory_cap=7), time_limit=2)
    small = search(linear(4, 8, (10, 11, 8), 1, memory_cap=4), time_limit=2, start=large)
    assert max(small.timeline.peak_memory) <= 4
    assert small.value >= large.value
