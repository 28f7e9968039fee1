"""Named schedules: valid everywhere, equal to the closed forms where these hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from debubble.compiler import placement
from debubble.compiler.errors import InputError
from debubble.compiler.named import NAMED, PLACEMENTS, named_schedule
from debubble.compiler.placement import Placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.simulation import Timeline, simulate
from debubble.compiler.verification import verify

EVEN = ("dualpipe", "dualpipe-v")
"""Schedules that need an even p, an even m and m >= 2p, or a part of that."""
derandomized = settings(derandomize=True, deadline=None, max_examples=100)


def fitting(name: str, p: int, chunks: int = 2) -> Placement:
    """The placement that a named schedule is drawn for."""
    kind = PLACEMENTS.get(name, "linear")
    return placement.named(kind, devices=p, chunks=chunks if kind in ("loop", "v") else None)


def timeline(
    name: str,
    p: int,
    m: int,
    costs: tuple[float, float, float],
    comm: float = 0,
    *,
    chunks: int = 2,
    group: int | None = None,
    memory: tuple[float, float, float] = (1, 0, -1),
) -> Timeline:
    place = fitting(name, p, chunks)
    forward, backward_input, backward_weight = costs
    profile = Profile.uniform(
        stages=place.stages,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        comm=comm,
        memory=memory,
    )
    problem = Problem(profile, place, m)
    return simulate(problem, named_schedule(name, problem, group_size=group))


def idle(found: Timeline) -> float:
    """What the busiest device waits within the objective: makespan."""
    return found.makespan - max(found.busy)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in EVEN])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_valid_for_any_size(name: str, p: int, m: int) -> None:
    """Every schedule is complete and free of deadlock for any p and m, m < p included."""
    place = fitting(name, p)
    problem = Problem(
        Profile.uniform(stages=place.stages, forward=1, backward_input=2, backward_weight=1, comm=0.5), place, m
    )
    assert verify(problem, named_schedule(name, problem)).errors == []


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 10), (4, 8), (6, 14), (8, 20)])
def test_dualpipe_is_valid(name: str, p: int, m: int) -> None:
    """DualPipe and DualPipeV are valid where their constraints hold."""
    place = fitting(name, p)
    problem = Problem(
        Profile.uniform(stages=place.stages, forward=1, backward_input=2, backward_weight=1, comm=0.5), place, m
    )
    assert verify(problem, named_schedule(name, problem)).errors == []


@derandomized
@given(p=st.integers(1, 8), m=st.integers(1, 18), v=st.integers(1, 4), group=st.none() | st.integers(1, 9))
def test_interleaved_is_valid_for_any_size(p: int, m: int, v: int, group: int | None) -> None:
    """Interleaving holds for any group size, also where m is not a multiple of it or of p."""
    profile = Profile.uniform(stages=p * v, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.loop(p, v), m)
    assert verify(problem, named_schedule("interleaved", problem, group_size=group)).errors == []


@derandomized
@given(problem=problems())
def test_naive_and_gpipe_are_valid_on_any_placement(problem: Problem) -> None:
    """Naive and GPipe make no assumption on placement or costs."""
    for name in ("naive", "gpipe"):
        assert verify(problem, named_schedule(name, problem)).errors == []


@derandomized
@given(p=st.integers(1, 8), m=st.integers(1, 20), costs=st.tuples(*[st.integers(1, 30)] * 3))
def test_1f1b_and_gpipe_bubble(p: int, m: int, costs: tuple[int, int, int]) -> None:
    """GPipe and 1F1B idle for (p - 1)(F + B + W) without transfer times."""
    for name in ("gpipe", "1f1b"):
        assert idle(timeline(name, p, m, costs)) == (p - 1) * sum(costs)


@derandomized
@given(p=st.integers(1, 8), rounds=st.integers(1, 3), v=st.integers(1, 3), costs=st.tuples(*[st.integers(1, 30)] * 3))
def test_interleaved_bubble(p: int, rounds: int, v: int, costs: tuple[int, int, int]) -> None:
    """Interleaving divides the bubble by v where p divides m: (p - 1) chunk passes of F + B + W."""
    assert idle(timeline("interleaved", p, p * rounds, costs, chunks=v)) == (p - 1) * sum(costs)


@derandomized
@given(p=st.integers(1, 8), extra=st.integers(0, 12), w=st.integers(1, 20), f=st.integers(0, 20), b=st.integers(0, 20))
def test_zb_h1_bubble(p: int, extra: int, w: int, f: int, b: int) -> None:
    """ZB-H1 idles for (p - 1)(F + B - W) where W <= F, B and m >= p (Qi et al. 2023, section 2.3)."""
    costs = (w + f, w + b, w)
    assert idle(timeline("zb-h1", p, p + extra, costs)) == (p - 1) * (costs[0] + costs[1] - w)


@derandomized
@given(p=st.integers(1, 8), extra=st.integers(0, 12), w=st.integers(4, 20), f=st.integers(0, 20), b=st.integers(0, 20))
def test_zb_h1_bubble_with_transfers(p: int, extra: int, w: int, f: int, b: int) -> None:
    """A transfer time of at most W/4 adds 4c per device to ZB-H1 once m > p."""
    costs, comm = (w + f, w + b, w), w // 4
    assert idle(timeline("zb-h1", p, p + 1 + extra, costs, comm)) == (p - 1) * (costs[0] + costs[1] - w + 4 * comm)


@derandomized
@given(p=st.integers(1, 6), w=st.integers(1, 20), f=st.integers(0, 20), b=st.integers(0, 20))
def test_zb_h2_bubble(p: int, w: int, f: int, b: int) -> None:
    """ZB-H2's span idles for (p - 1)(F + B - 2W) where W <= F, B and m is large."""
    costs = (w + f, w + b, w)
    found = timeline("zb-h2", p, 4 * p, costs)
    assert found.span - max(found.busy) == (p - 1) * (costs[0] + costs[1] - 2 * w)


NAMES = ("1f1b", "zb-h1", "zb-1p", "zb-h2", "zb-2p")


@pytest.mark.parametrize(
    ("p", "m", "costs", "comm", "rates"),
    [  # published times in us and rates of NAMES, arXiv 2401.10241
        (8, 24, (18522, 18086, 9337), 601, (0.2431, 0.1585, 0.1585, 0.1083, 0.0433)),
        (8, 32, (18513, 18086, 9331), 626, (0.1985, 0.1242, 0.1242, 0.0837, 0.0039)),
        (8, 64, (18546, 18097, 9321), 762, (0.1240, 0.0674, 0.0674, 0.0444, 0.0026)),
        (8, 24, (29718, 29444, 19927), 527, (0.2347, 0.1323, 0.1323, 0.0698, 0.0029)),
        (8, 32, (29802, 29428, 19530), 577, (0.1898, 0.1045, 0.1045, 0.0559, 0.0022)),
        (8, 64, (29935, 29621, 19388), 535, (0.1091, 0.0554, 0.0554, 0.0294, 0.0010)),
        (16, 48, (11347, 11248, 8132), 377, (0.2552, 0.1397, 0.1397, 0.0672, 0.0066)),
        (16, 64, (11307, 11254, 8101), 379, (0.2082, 0.1088, 0.1088, 0.0516, 0.0054)),
        (16, 128, (11325, 11308, 8109), 378, (0.1251, 0.0576, 0.0576, 0.0266, 0.0028)),
        (32, 96, (10419, 10207, 7715), 408, (0.2646, 0.1421, 0.1421, 0.0641, 0.0038)),
        (32, 128, (10408, 10204, 7703), 408, (0.2168, 0.1106, 0.1106, 0.0490, 0.0029)),
        (32, 256, (10402, 10248, 7698), 460, (0.1352, 0.0594, 0.0594, 0.0257, 0.0018)),
    ],
)
def test_published_bubble_rates(
    p: int, m: int, costs: tuple[int, int, int], comm: int, rates: tuple[float, ...]
) -> None:
    """1F1B and ZB-H1 by makespan, the others by span, give the published rates to four digits, within their memory."""
    work = m * sum(costs)
    found = {name: timeline(name, p, m, costs, comm, memory=(2, -1, -1)) for name in NAMES}
    values = [found[name].makespan if name in ("1f1b", "zb-h1") else found[name].span for name in NAMES]
    assert tuple(round((value - work) / value, 4) for value in values) == rates
    assert max(found["zb-1p"].peak_memory) <= 2 * p
    assert max(found["zb-2p"].peak_memory) <= 4 * p


def test_textbook_bubbles() -> None:
    """p=4, m=8: 0.375 of the ideal time for GPipe and 1F1B, half of it for two chunks; 3/11 and 3/19 idle."""
    for name in ("gpipe", "1f1b"):
        assert timeline(name, 4, 8, (1, 1, 1)).bubble_ratio() == pytest.approx(0.375)
        assert timeline(name, 4, 8, (1, 1, 1)).idle_fraction == pytest.approx(3 / 11)
        assert timeline(name, 4, 16, (1, 1, 1)).idle_fraction == pytest.approx(3 / 19)
    assert timeline("interleaved", 4, 8, (1, 1, 1), chunks=2).bubble_ratio() == pytest.approx(0.1875)
    assert timeline("naive", 4, 8, (1, 1, 1)).bubble_ratio() == pytest.approx(3)


@derandomized
@given(p=st.integers(1, 9), m=st.integers(1, 20))
def test_in_flight_microbatches(p: int, m: int) -> None:
    """1F1B holds min(m, p - r) micro-batches on device r, GPipe m, ZB-H1 at most p, ZB-H2 at most 2p - 1."""
    unit = (1, 1, 1)
    assert timeline("1f1b", p, m, unit).peak_memory == [min(m, p - r) for r in range(p)]
    assert timeline("gpipe", p, m, unit).peak_memory == [m] * p
    assert max(timeline("zb-h1", p, m, unit).peak_memory) == min(m, p)
    assert max(timeline("zb-h2", p, m, unit).peak_memory) <= min(m, 2 * p - 1)


def test_interleaved_matches_megatron() -> None:
    """p=4, v=2, m=8: warm-up 10, 8, 6, 4 before the first pair, makespan 57 and peaks 11, 9, 7, 5 (F=1, BW=2)."""
    found = timeline("interleaved", 4, 8, (1, 1, 1), chunks=2)
    warm_ups = [next(i for i, step in enumerate(order) if step.kind == "BW") - 1 for order in found.schedule.orders]
    assert warm_ups == [10, 8, 6, 4]
    assert found.makespan == 57
    assert found.peak_memory == [11, 9, 7, 5]


def test_overheads_of_the_textbook() -> None:
    """p=8, m=20 with BW = 2F = 2W, over the ideal time: (p-1)/m, a v-th of it interleaved, (p-2)/(3m) for DualPipe."""
    assert timeline("1f1b", 8, 20, (1, 1, 1)).bubble_ratio() == pytest.approx(0.35)
    assert timeline("interleaved", 8, 20, (1, 1, 1), chunks=2).bubble_ratio() == pytest.approx(0.175)
    assert timeline("interleaved", 8, 20, (1, 1, 1), chunks=4).bubble_ratio() == pytest.approx(0.0875)
    assert timeline("dualpipe", 8, 20, (1, 1, 1)).bubble_ratio() == pytest.approx(0.10)


def test_small_groups_cost_time() -> None:
    """A group of two on four devices is allowed, and slower than a group of four."""
    assert timeline("interleaved", 4, 8, (1, 1, 1), chunks=2, group=2).makespan > 57


def test_interleaved_m_not_a_multiple() -> None:
    """p=4, v=2, m=10 takes two groups of five, as torch 2.13 does: makespan 69 at F=1, BW=2."""
    assert timeline("interleaved", 4, 10, (1, 1, 1), chunks=2).makespan == 69


def test_fewer_microbatches_than_devices() -> None:
    """1F1B with F=1, BW=2: 24 for p=8, m=1 and 15 for p=4, m=2."""
    assert timeline("1f1b", 8, 1, (1, 1, 1)).makespan == 24
    assert timeline("1f1b", 4, 2, (1, 1, 1)).makespan == 15


def test_unknown_name_lists_the_known() -> None:
    """An unknown schedule is refused with the names there are."""
    problem = Problem(Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=1), placement.linear(2), 2)
    with pytest.raises(InputError, match="zb-h1"):
        named_schedule("zb-h9", problem)


def test_unfit_placement_is_refused_in_words() -> None:
    """1F1B on two chunks per device says what it needs."""
    problem = Problem(Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1), placement.v(2), 2)
    with pytest.raises(InputError, match="one stage per device"):
        named_schedule("1f1b", problem)


@pytest.mark.parametrize(
    ("name", "p", "m", "costs", "comm", "rate"),
    [  # published rates of ZB-V, arXiv 2401.10241, and what the authors' own V-Half and V-Min give
        ("zb-v", 8, 16, (5, 5.5, 4), 1, 0.1111),
        ("zb-v", 16, 48, (14407, 14380, 9676), 1610, 0.0697),
        ("v-half", 8, 16, (5, 5.5, 4), 1, 0.2431),
        ("v-min", 8, 16, (5, 5.5, 4), 1, 0.3954),
    ],
)
def test_published_rates_of_v_schedules(
    name: str, p: int, m: int, costs: tuple[float, float, float], comm: float, rate: float
) -> None:
    """The V schedules give the published rates by span to four digits."""
    found = timeline(name, p, m, costs, comm)
    assert round((found.span - 2 * m * sum(costs)) / found.span, 4) == rate


def test_v_schedules_as_makespans() -> None:
    """p=8, m=16, costs 5/5.5/4 per chunk, transfer 1: ZB-V 539, V-Half 613, V-Min 767.5."""
    values = [timeline(name, 8, 16, (5, 5.5, 4), 1).makespan for name in ("zb-v", "v-half", "v-min")]
    assert values == [539, 613, 767.5]


@pytest.mark.parametrize("p", range(1, 9))
def test_memory_of_v_schedules(p: int) -> None:
    """ZB-V holds at most 2p chunk activations, V-Half 2((p + 2) // 2), V-Min 2((p + 4) // 3)."""
    limits = {"zb-v": 2 * p, "v-half": 2 * ((p + 2) // 2), "v-min": 2 * ((p + 4) // 3)}
    for name, limit in limits.items():
        assert max(timeline(name, p, 3 * p, (1, 1, 1)).peak_memory) <= limit


@derandomized
@given(half=st.integers(1, 4), extra=st.integers(0, 4), f=st.integers(0, 20), w=st.integers(1, 20))
def test_dualpipe_bubble(half: int, extra: int, f: int, w: int) -> None:
    """DualPipe idles for (p/2 - 1)(FB + BW - 3W) where F = B >= W and a pair takes F + BW."""
    p = 2 * half
    cost = f + w
    found = timeline("dualpipe", p, 2 * p + 2 * extra, (cost, cost, w))
    assert idle(found) == (half - 1) * ((2 * cost + w) + (cost + w) - 3 * w)


@pytest.mark.parametrize("p", [2, 4, 6, 8])
def test_dualpipe_holds_p_plus_one(p: int) -> None:
    """DualPipe holds p + 1 activations of a stage, DualPipeV 2p + 1 chunk activations; the forward counts first."""
    assert timeline("dualpipe", p, 2 * p, (1, 1, 1)).peak_memory == [p + 1] * p
    assert timeline("dualpipe-v", p, 2 * p + 2, (1, 1, 1)).peak_memory == [2 * p + 1] * p


def test_dualpipe_of_unit_costs() -> None:
    """p=8, m=16 and unit costs: 54; p=4, m=8: 26."""
    assert timeline("dualpipe", 8, 16, (1, 1, 1)).makespan == 54
    assert timeline("dualpipe", 4, 8, (1, 1, 1)).makespan == 26


def test_dualpipe_refuses_what_it_cannot_draw() -> None:
    """An odd number of micro-batches is refused with the constraint."""
    place = placement.bidirectional(4)
    problem = Problem(Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1), place, 9)
    with pytest.raises(InputError, match="even m and m >= 2p"):
        named_schedule("dualpipe", problem)
