"""Idle time and its causes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler import placement
from debubble.compiler.arrival import arrivals
from debubble.compiler.errors import InputError
from debubble.compiler.idleness import CAUSES, Gap, awaited, by_cause, by_root, gaps, levels, remedy, roots
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import parse_step
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import Timeline, peak_memory, simulate


def _gaps(timeline: Timeline) -> list[list[Gap]]:
    return gaps(timeline, arrivals(timeline))


def _two(
    orders: list[str], microbatches: int, comm: float = 0.0, cap: float | None = None, weight: float = 2.0
) -> Timeline:
    """Two devices, F = B = 2, memory held until W."""
    profile = Profile.uniform(stages=2, forward=2, backward_input=2, backward_weight=weight, comm=comm)
    problem = Problem(profile, placement.linear(2), microbatches, cap)
    return simulate(problem, Schedule.of([map(parse_step, order.split()) for order in orders]))


def test_every_cause_has_words_and_a_remedy() -> None:
    """A picture can always say what a cause means and what would help."""
    assert all(remedy(cause, optimal=optimal) for cause in CAUSES for optimal in (False, True))


def test_no_other_order_is_advised_where_none_is_faster() -> None:
    """An order that feeds a device sooner may help, unless the one at hand is proved optimal."""
    assert "an order" in remedy("dependency", optimal=False)
    assert not any("another order" in remedy(cause, optimal=True) for cause in CAUSES)
    assert remedy("order", optimal=True) == "nothing: it is proved that no order is faster"


def test_warm_up_dependency_transfer_and_drain_by_hand() -> None:
    """One micro-batch: F 0-2 on device 0; F 3-5, B 5-7, W 7-9 on device 1; B 8-10, W 10-12 on device 0."""
    found = _gaps(_two(["0F0 0B0 0W0", "1F0 1B0 1W0"], 1, comm=1))
    assert found[0] == [Gap(0, 2, 7, "dependency", 1, (1, 1)), Gap(0, 7, 8, "transfer", 1, (1, 1))]
    assert found[1] == [Gap(1, 0, 3, "warm-up", 0, None), Gap(1, 9, 12, "drain", 3, None)]


def test_a_step_that_the_cap_forbids_makes_the_wait_one_for_memory() -> None:
    """Device 0 waits from 2 to 6; the forward of micro-batch 1 would fit twice in time, but a cap of 1 forbids it."""
    orders = ["0F0 0B0 0W0 0F1 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1"]
    held = _gaps(_two(orders, 2, cap=1))[0]
    assert held[:2] == [Gap(0, 2, 4, "memory", 1, (0, 3), 2), Gap(0, 4, 6, "dependency", 1, (1, 1))]


def test_a_step_that_would_fit_under_the_cap_makes_the_wait_one_for_order() -> None:
    """The same orders with room for two micro-batches: nothing but the order keeps the forward back."""
    orders = ["0F0 0B0 0W0 0F1 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1"]
    assert _gaps(_two(orders, 2, cap=2))[0][0] == Gap(0, 2, 4, "order", 1, (0, 3))


def test_a_step_that_does_not_fit_in_time_is_no_explanation() -> None:
    """A wait of 2 before the second gradient cannot be filled with a W of 3, which is ready."""
    orders = ["0F0 0F1 0B0 0B1 0W0 0W1", "1F0 1B0 1F1 1B1 1W0 1W1"]
    causes = {gap.cause for gap in _gaps(_two(orders, 2, comm=1, weight=3))[0]}
    assert causes == {"dependency", "transfer"}


def test_a_gap_delays_the_next_step_or_the_one_that_is_held_back() -> None:
    """Memory holds back F 1, a dependency the gradient that comes next, and the drain nothing."""
    orders = ["0F0 0B0 0W0 0F1 0B1 0W1", "1F0 1B0 1W0 1F1 1B1 1W1"]
    first, second = _gaps(_two(orders, 2, cap=1))
    assert [gap.delayed for gap in first[:2]] == [3, 1]
    assert second[-1].delayed is None


def _three() -> Timeline:
    """Three devices, two micro-batches; the last device takes three times as long as the others."""
    stages = tuple(Stage(forward=time, backward_input=time, backward_weight=0) for time in (1, 1, 3))
    problem = Problem(Profile(stages=stages), placement.linear(3), 2)
    return simulate(problem, named_schedule("gpipe", problem))


def test_waits_are_put_down_to_the_busy_device_at_the_end_of_the_chain() -> None:
    """Device 0 waits for device 1, which itself waits for device 2: both gradients are due to device 2."""
    timeline = _three()
    found = arrivals(timeline)
    assert roots(timeline, found) == [[0, 0, 2, 2], [0, 1, 2, 2], [0, 2, 2, 2]]
    first = gaps(timeline, found)[0]
    assert {gap.step and gap.step[0] for gap in first if gap.cause == "dependency"} == {1}
    assert by_root(first, roots(timeline, found)).keys() == {2}


def test_a_step_that_starts_as_soon_as_its_device_is_free_waited_for_nothing() -> None:
    """The second forward of the first device follows the first; that of the second device came from there."""
    timeline = _three()
    found = arrivals(timeline)
    assert awaited(timeline, found, 0, 1) is None
    need = awaited(timeline, found, 1, 0)
    assert need is not None
    assert (need.device, need.step, need.time) == (0, 0, 1)


def test_a_wait_is_filled_by_several_steps() -> None:
    """Each of the forwards that GPipe's opposite, one micro-batch at a time, holds back counts with its length."""
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(4), 4)
    first = _gaps(simulate(problem, named_schedule("naive", problem)))[0]
    assert [(gap.cause, gap.step) for gap in first[:3]] == [("order", (0, 2)), ("order", (0, 4)), ("order", (0, 6))]


def test_sums_by_cause_keep_the_order_of_the_causes() -> None:
    """Every cause is there, those without idle time with 0."""
    totals = by_cause([Gap(0, 1, 3, "drain", 4, None), Gap(0, 5, 6, "drain", 4, None)])
    assert list(totals.items()) == [*((cause, 0) for cause in list(CAUSES)[:-1]), ("drain", 3)]


_SCHEDULES = st.sampled_from(["naive", "gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved", "zb-v", "dualpipe"])
_PLACES = {"interleaved": placement.loop, "zb-v": placement.v, "dualpipe": placement.bidirectional}


@st.composite
def _timelines(draw: st.DrawFn) -> Timeline:
    """Named schedules, under a cap that is as high as they need."""
    name = draw(_SCHEDULES)
    where = _PLACES.get(name, placement.linear)(draw(st.sampled_from([2, 4])))
    times = [float(draw(st.integers(0, 6))) for _ in range(3)]
    profile = Profile.uniform(
        stages=where.stages,
        forward=times[0],
        backward_input=times[1],
        backward_weight=times[2],
        comm=float(draw(st.integers(0, 2))),
        memory=draw(st.sampled_from([(1, 0, -1), (2, -1, -1), (2, 1, -3)])),
    )
    problem = Problem(profile, where, draw(st.sampled_from([4, 8])))
    try:
        timeline = simulate(problem, named_schedule(name, problem))
    except InputError:
        timeline = simulate(problem, named_schedule("gpipe", problem))
    capped = Problem(profile, where, problem.microbatches, tuple(timeline.peak_memory))
    return simulate(capped, timeline.schedule)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(_timelines())
def test_busy_and_idle_time_make_up_the_makespan(timeline: Timeline) -> None:
    """Nothing is counted twice or left out, and gaps neither overlap nor leave their order."""
    for device, found in enumerate(_gaps(timeline)):
        idle = sum(gap.length for gap in found)
        assert idle + timeline.busy[device] == pytest.approx(timeline.makespan)
        assert all(a.end <= b.start for a, b in pairwise(found))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(_timelines())
def test_waits_end_with_what_they_wait_for(timeline: Timeline) -> None:
    """A dependency's maker is still busy, a transfer's has ended; and its value is what the next step needs last."""
    found = arrivals(timeline)
    for gap in (gap for device in gaps(timeline, found) for gap in device if gap.cause in ("dependency", "transfer")):
        assert gap.step is not None
        device, index = gap.step
        need = next(need for need in found[gap.device][gap.before] if (need.device, need.step) == (device, index))
        assert need.time == pytest.approx(timeline.starts[gap.device][gap.before])
        made = timeline.ends[device][index]
        assert made >= gap.end if gap.cause == "dependency" else made <= gap.start


@settings(derandomize=True, deadline=None, max_examples=120)
@given(_timelines())
def test_memory_and_order_tell_whether_moving_the_step_breaks_the_cap(timeline: Timeline) -> None:
    """Move what was held back into the wait: the peak then exceeds the cap exactly where the cause is memory."""
    for device, found in enumerate(_gaps(timeline)):
        order = timeline.schedule.orders[device]
        waits: dict[int, list[Gap]] = {}
        for gap in found:
            if gap.cause in ("memory", "order"):
                waits.setdefault(gap.before, []).append(gap)
        for before, held_back in waits.items():
            moved: list[int] = []
            for gap in held_back:
                assert gap.step is not None
                trial = [*moved, gap.step[1]]
                rest = [index for index in range(len(order)) if index not in trial]
                at = rest.index(before)
                new = tuple(order[index] for index in rest[:at] + trial + rest[at:])
                fits = timeline.problem.within_cap(device, peak_memory(timeline.problem, device, new))
                assert fits == (gap.cause == "order")
                moved = trial if fits else moved


@settings(derandomize=True, deadline=None, max_examples=40)
@given(_timelines())
def test_a_root_is_a_device_that_was_busy_until_the_step_that_it_held_up_could_start(timeline: Timeline) -> None:
    """Going back from awaited step to awaited step ends on the root, at a step that waited for nothing."""
    found = arrivals(timeline)
    for device, order in enumerate(roots(timeline, found)):
        for index, root in enumerate(order):
            place = (device, index)
            while (need := awaited(timeline, found, *place)) is not None:
                place = (need.device, need.step)
            assert place[0] == root


@settings(derandomize=True, deadline=None, max_examples=40)
@given(_timelines())
def test_levels_are_those_of_the_memory_curve(timeline: Timeline) -> None:
    """The most held during any step is the peak, and nothing but static memory is left at the end."""
    for device, peak in enumerate(timeline.peak_memory):
        during, after = levels(timeline, device)
        assert during.max() == pytest.approx(peak)
        assert after[-1] == pytest.approx(timeline.problem.static_memory[device])
