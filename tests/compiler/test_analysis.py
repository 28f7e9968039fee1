"""Why a plan takes as long as it does, in sentences."""

from __future__ import annotations

import pytest

from debubble.compiler import placement
from debubble.compiler.analysis import Analysis, amount, listed
from debubble.compiler.certificate import Certificate
from debubble.compiler.idleness import Gap
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage


def _analysis(name: str = "1f1b", *, bound: float = 0.0, last: float = 3.0, objective: str = "makespan") -> Analysis:
    """Three devices and four micro-batches, the last device's stage `last` times as long as the others' of 10 each."""
    stages = tuple(Stage(forward=10 * k, backward_input=10 * k, backward_weight=0) for k in (1, 1, last))
    problem = Problem(Profile(stages=stages, time_unit="ms"), placement.linear(3), 4, objective=objective)
    certificate = Certificate(lower_bound=bound, name="load", proof="checked", witness={"device": 2})
    return Analysis(Plan(problem, named_schedule(name, problem), (), certificate))


def test_the_first_sentence_names_the_device_at_the_root_of_the_waits() -> None:
    """Device 0 waits for device 1, but what keeps both waiting is device 2, busy for 240 of 280 ms."""
    first = _analysis().sentences()[0]
    assert first.startswith("Device 0 waits most: 200 ms of 280 ms, warm-up and drain included (as long as device 1).")
    assert "is dependency" in first
    assert "in the end it waits for device 2, which is busy 86% of the time" in first


def test_the_critical_path_is_told_by_devices_and_kinds() -> None:
    """Down to the last device, there without a pause, and back; each kind with its number and time."""
    path = next(sentence for sentence in _analysis().sentences() if sentence.startswith("Critical path"))
    assert "20 ms through devices 0 and 1, then device 2 without a pause for 240 ms, then 20 ms through devices" in path
    assert "6 F 140 ms, 6 BW 140 ms, 4 transfers 0 ms" in path
    assert "Without slack: 12 operations (device 0: 1 F, 1 BW; device 1: 1 F, 1 BW; device 2: 4 F, 4 BW)" in path


def test_a_path_that_stays_nowhere_is_told_by_how_often_it_moves() -> None:
    """One micro-batch after the other visits every device twice."""
    assert "it changes its device 16 times" in "".join(_analysis("naive", last=1).sentences())


def test_advice_follows_the_proof() -> None:
    """Where the bound is met no order is recommended; where it is not, the most that another could save is said."""
    met, open_ = (" ".join(_analysis(bound=bound).sentences()) for bound in (280, 240))
    assert "an order that feeds it sooner" in open_
    assert "Another order could save at most 40 ms (14.3%)" in open_
    assert "an order that feeds it sooner" not in met
    assert "No order is faster" in met
    assert "device 2 is busy from its first possible start" in met


def test_advice_is_about_the_device_that_the_critical_path_spends_most_on() -> None:
    """Its share is said."""
    assert "layers on device 2, which has 240 ms of the critical path (86%)" in _analysis().sentences()[-1]


def test_waits_with_slack_cost_nothing() -> None:
    """The wait of the second device before its second forward can last longer; the drain has nothing after it."""
    analysis = _analysis()
    assert analysis.slack(Gap(0, 40, 50, "dependency", 3, (1, 2))) == analysis.slacks[0][3]
    assert analysis.slack(Gap(2, 260, 280, "drain", 8, None)) == 0


def test_span_says_what_does_not_count() -> None:
    """Warm-up and drain."""
    assert _analysis(objective="span").sentences()[-1].endswith("warm-up and drain do not count in it.")


def test_a_plan_without_idle_time() -> None:
    """One device is never idle, and the critical path stays on it."""
    profile = Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(1), 2)
    certificate = Certificate(lower_bound=6, name="work", proof="checked", witness={"device": 0})
    found = Analysis(Plan(problem, named_schedule("1f1b", problem), (), certificate)).sentences()
    assert found[0] == "No device waits."
    assert found[1].startswith("Critical path: device 0 without a pause for 6 (")


@pytest.mark.parametrize(("last", "tied"), [(1, "(as long as device 1)"), (3, "included. Most")])
def test_two_devices_tie_or_not(last: float, tied: str) -> None:
    """The other one is named when it waits as long, and nothing is said when it does not."""
    stages = tuple(Stage(forward=10 * k, backward_input=10 * k, backward_weight=0) for k in (1, last))
    problem = Problem(Profile(stages=stages), placement.linear(2), 4)
    certificate = Certificate(lower_bound=1, name="work", proof="checked", witness={"device": 0})
    plan = Plan(problem, named_schedule("1f1b", problem), (), certificate)
    assert tied in Analysis(plan).sentences()[0]


def test_waits_of_which_some_have_slack() -> None:
    """Only the wait for the last gradient cannot be longer; the time before the others costs nothing."""
    assert "Only 50 ms of it delays steps without slack" in _analysis().sentences()[0]


def test_a_critical_path_that_is_spread_over_the_devices() -> None:
    """No device is singled out when none has half of it."""
    assert "(as long as all others)" in _analysis(last=1).sentences()[0]
    assert "(33% at most)" in _analysis(last=1).sentences()[-1]


@pytest.mark.parametrize(("value", "text"), [(595.6000000000001, "595.6"), (196608, "196610"), (1 / 3, "0.33333")])
def test_amounts_have_five_digits(value: float, text: str) -> None:
    """More tell nobody more."""
    assert amount(value, "ms") == f"{text} ms"


def test_lists_leave_the_middle_out() -> None:
    """Up to eight are listed in full."""
    assert listed([3]) == "3"
    assert listed(range(64)) == "0, 1, 2, 3, 4, 5, ... and 63"
