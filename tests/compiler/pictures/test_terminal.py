"""The timeline in the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation, Pair
from debubble.compiler.pictures import terminal
from debubble.compiler.placement import Placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import Timeline, simulate

UNIT = (1.0, 1.0, 1.0)


def _timeline(
    name: str,
    where: Placement,
    microbatches: int,
    costs: tuple[float, float, float] = UNIT,
    cap: float | None = None,
) -> Timeline:
    profile = Profile.uniform(stages=where.stages, forward=costs[0], backward_input=costs[1], backward_weight=costs[2])
    problem = Problem(profile, where, microbatches, cap)
    return simulate(problem, named_schedule(name, problem))


def test_unit_durations_are_an_exact_grid() -> None:
    """1F1B on two devices, cell by cell: one unit takes four columns, a fused backward two units."""
    lines = terminal.draw(_timeline("1f1b", placement.linear(2), 2), width=80, coloured=False).plain.splitlines()
    assert lines[1] == "0 F0--F1--        BW0-----    BW1----- 2"
    assert lines[2] == "1     F0--BW0-----F1--BW1-----         1"
    assert lines[-1] == "0.25 a column"


def test_plain_drawings_tell_kinds_by_letters() -> None:
    """Where a number does not fit, the letter stands alone."""
    text = terminal.draw(_timeline("zb-h1", placement.linear(4), 30), width=100, coloured=False).plain
    assert "F0" not in text
    assert {"F", "B", "W"} <= set(text.splitlines()[1])


def test_coloured_drawings_carry_the_numbers() -> None:
    """With colour, the letters are not needed."""
    text = terminal.draw(_timeline("1f1b", placement.linear(2), 3), width=80, coloured=True)
    assert text.plain.splitlines()[1].startswith("0  0   1      ")
    assert {str(span.style.bgcolor.name) for span in text.spans if span.style.bgcolor} >= {"#0072b2", "#d55e00"}


def test_costs_that_are_no_grid_are_rounded_and_say_so() -> None:
    """Ten, eleven and eight do not fit eighty columns."""
    text = terminal.draw(_timeline("zb-h1", placement.linear(4), 8, (10, 11, 8)), width=80, coloured=False).plain
    assert text.splitlines()[-1].endswith("a column, rounded")


def test_peaks_stand_next_to_the_caps() -> None:
    """Every device's line ends with its peak memory and its cap."""
    text = terminal.draw(_timeline("1f1b", placement.linear(3), 4, cap=5), width=80, coloured=False).plain
    assert [line.split()[-1] for line in text.splitlines()[1:4]] == ["3/5", "2/5", "1/5"]


def test_the_legend_states_the_costs() -> None:
    """What each kind takes, and what a transfer takes, is on the picture."""
    text = terminal.draw(_timeline("zb-h1", placement.linear(2), 4, (10, 11, 8)), width=80, coloured=False).plain
    assert "forward 10" in text
    assert "input gradient 11" in text
    assert "weight gradient 8" in text
    assert "transfer 0" in text


def test_overlapped_pairs_are_drawn() -> None:
    """A pair is one block with both numbers."""
    profile = Profile.uniform(stages=1, forward=2, backward_input=2, backward_weight=2)
    problem = Problem(profile, placement.linear(1), 2)
    steps = [
        Operation("F", 0, 0),
        Pair(Operation("F", 0, 1), Operation("BW", 0, 0)),
        Operation("BW", 0, 1),
    ]
    text = terminal.draw(simulate(problem, Schedule.of([steps])), width=80, coloured=False).plain
    assert "P1+0" in text


def test_zero_durations_are_drawn_without_harm() -> None:
    """When nothing takes time there is nothing to see, and no error."""
    text = terminal.draw(_timeline("gpipe", placement.linear(2), 2, (0, 0, 0)), width=80, coloured=False).plain
    assert len(text.splitlines()) >= 4


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.sampled_from(["naive", "gpipe", "1f1b", "zb-h1", "zb-h2"]),
    st.integers(1, 6),
    st.integers(1, 12),
    st.tuples(*[st.sampled_from([0.0, 0.3, 1.0, 2.0, 7.1])] * 3),
    st.integers(40, 220),
    st.booleans(),
)
def test_every_line_of_a_device_fits_the_width(
    name: str, devices: int, microbatches: int, costs: tuple[float, float, float], width: int, coloured: bool
) -> None:
    """No device's line is wider than asked for, and all are equally wide up to the memory column."""
    timeline = _timeline(name, placement.linear(devices), microbatches, costs)
    lines = terminal.draw(timeline, width=width, coloured=coloured).plain.splitlines()[: devices + 1]
    assert max(map(len, lines)) <= width
    assert len({line.rstrip().rfind(" ") for line in lines[1:]}) == 1


@pytest.mark.parametrize("kind", ["interleaved"])
def test_chunks_are_told_apart_by_shade(kind: str) -> None:
    """The second chunk of a device has a lighter colour of the same hue."""
    text = terminal.draw(_timeline(kind, placement.loop(2), 2), width=80, coloured=True)
    colours = {span.style.bgcolor.name for span in text.spans if span.style.bgcolor}
    assert len(colours) > 4


def test_steps_narrower_than_columns_are_mixed() -> None:
    """In the steady state of ZB-H1 every column holds about one F, B and W: none of the three may hide the others."""
    timeline = _timeline("zb-h1", placement.linear(16), 64, (10, 11, 8))
    text = terminal.draw(timeline, width=80, coloured=True)
    assert text.plain.splitlines()[-1].endswith("a column, for several steps: the mixture of their colours")
    first = text.plain.splitlines(keepends=True)
    middle = sum(map(len, first[:8])) + 40
    colours = {span.style.bgcolor.name for span in text.spans if middle <= span.start < middle + 10}
    assert len(colours) > 1
    for colour in colours:
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        assert 30 <= red <= 190
        assert 110 <= green <= 170
        assert 20 <= blue <= 150


def test_a_plain_mixture_is_the_kind_with_the_most_time() -> None:
    """And the last line says so."""
    timeline = _timeline("zb-h1", placement.linear(2), 64, (1, 5, 1))
    lines = terminal.draw(timeline, width=60, coloured=False).plain.splitlines()
    assert lines[-1].endswith("a column, for several steps: the kind that takes most of it")
    assert lines[1].count("B") > 40


def test_idle_columns_stay_blank_in_a_mixture() -> None:
    """Warm-up and drain are seen however narrow the steps are."""
    timeline = _timeline("gpipe", placement.linear(4), 100)
    lines = terminal.draw(timeline, width=60, coloured=False).plain.splitlines()
    assert lines[4][2:3] == " "
    assert " B" in lines[1][10:]


@pytest.mark.parametrize("coloured", [False, True])
def test_a_long_legend_is_broken(coloured: bool) -> None:
    """Five kinds and a transfer do not fit into eighty columns."""
    timeline = _timeline("dualpipe", placement.bidirectional(4), 8)
    lines = terminal.draw(timeline, width=80, coloured=coloured).plain.splitlines()
    assert max(map(len, (line.rstrip() for line in lines))) <= 80
    assert lines[-2].endswith("transfer 0")


def test_many_steps_without_duration_do_no_harm() -> None:
    """More steps than columns, and no time to spread them over."""
    text = terminal.draw(_timeline("gpipe", placement.linear(2), 60, (0, 0, 0)), width=60, coloured=True).plain
    assert text.splitlines()[-1] == "0 a column, rounded"


def test_letters_of_the_drawing_are_those_of_the_legend() -> None:
    """A pair is P in both."""
    timeline = _timeline("dualpipe", placement.bidirectional(4), 8)
    assert "P: F with backward" in terminal.draw(timeline, width=200, coloured=False).plain


def test_plain_drawings_tell_chunks_by_case() -> None:
    """The second stage of a device is in lower case, and the last line says so and why numbers are missing."""
    lines = terminal.draw(_timeline("zb-v", placement.v(4), 6), width=80, coloured=False).plain.splitlines()
    assert {"f", "b", "w"} <= set(lines[1])
    assert not set("123456789") & set(lines[1][2:-2])
    assert "no micro-batch numbers" in lines[-1]
    assert "lower case" in lines[-1]
