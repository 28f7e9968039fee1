"""Judging files: what is found, where it is, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.interchange import Judgement, verify_file
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile, Stage

UNIT_BACKWARD = Profile.uniform(stages=4, forward=1, backward_input=0.5, backward_weight=0.5)
SPLIT = "0F0,0F1,1F0,1F1,1I0,1W0,1I1,1W1,0I0,0W0,0I1,0W1\n"
CROSSED = "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2RECV_F1,2F1\n1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1\n"
COMMUNICATING = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
)


def judge(folder: Path, content: str, **options: Any) -> Judgement:
    path = folder / "schedule"
    path.write_bytes(content.encode())
    return verify_file(path, **options)


def codes(judgement: Judgement) -> list[str]:
    return sorted({error.code for error in judgement.report.errors})


def places(judgement: Judgement) -> list[tuple[str, int | None, int | None]]:
    return [(error.code, error.line, error.column) for error in judgement.report.errors]


def test_numbers_of_a_valid_schedule(tmp_path: Path) -> None:
    """Makespan, span, bubbles, peaks, and the drawn length where idle cells are drawn."""
    found = judge(tmp_path, "F0 F1 .   .   .   BW0 BW1\n.  F0 F1  .   BW0 BW1\n.  .  F0  BW0 F1  BW1\n").as_json()
    assert found == {
        "valid": True, "errors": [], "warnings": [], "dialect": "text", "devices": 3, "stages": 3, "microbatches": 2,
        "makespan": 12.0, "span": 12.0, "peak_memory": [2.0, 2.0, 1.0], "bubble_ratio": 1.0,
        "idle_fraction": 0.5, "drawn_makespan": 7.0,
    }  # fmt: skip


def test_a_picture_that_is_not_to_scale(tmp_path: Path) -> None:
    """GPipe drawn with too much idle time: 18 columns, of which 14 are needed when F and B take 1 each."""
    rows = [
        "F0 F1 F2 F3 .  .  .  .  .  .  .  .  .  .  B3 B2 B1 B0",
        ".  F0 F1 F2 F3 .  .  .  .  .  .  B3 B2 B1 B0",
        ".  .  F0 F1 F2 F3 .  .  .  B3 B2 B1 B0",
        ".  .  .  F0 F1 F2 F3 B3 B2 B1 B0",
    ]
    found = judge(tmp_path, "\n".join(rows), profile=UNIT_BACKWARD)
    assert found.valid
    assert found.timeline is not None
    assert (found.timeline.makespan, found.drawn_makespan) == (14, 18)
    assert found.timeline.idle_fraction == pytest.approx(6 / 14)


def test_split_backwards_alone(tmp_path: Path) -> None:
    """A file with F, I and W only is complete."""
    found = judge(tmp_path, SPLIT)
    assert found.valid
    assert found.timeline is not None
    assert found.timeline.makespan == 12


def test_unequal_stages_per_device(tmp_path: Path) -> None:
    """Three stages on one device, two on the other."""
    found = judge(tmp_path, "0F0,1F0,,,4F0,4B0,,,1B0,0B0\n,,2F0,3F0,,,3B0,2B0,,\n")
    assert found.valid
    assert found.timeline is not None
    assert (found.timeline.makespan, found.timeline.busy) == (15, [9, 6])


def test_last_device_off_by_one(tmp_path: Path) -> None:
    """Forwards 1 and 2 instead of 0 and 1: one is missing, one does not exist, and both are pointed at."""
    found = judge(tmp_path, "0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1\n")
    assert places(found) == [("microbatch-out-of-range", 2, 9), ("missing-operation", 2, 5)]
    assert "1F0 is never executed, though 1B0 needs it" in found.report.errors[1].message


def test_all_errors_in_one_run(tmp_path: Path) -> None:
    """A missing, a doubled, a misplaced and an early operation, each reported once."""
    found = judge(tmp_path, "0F0,0F1,0F1,0B0,1B1\n1F0,1F1,1B0,1B1,0B1,1F0\n", placement="0,1")
    assert codes(found) == ["duplicate-operation", "wrong-device"]
    found = judge(tmp_path, "0F0,0B0,0B1,0F1\n1F0,1F1,1B0,0F1\n")
    assert codes(found) == ["duplicate-operation", "missing-operation", "wrong-device", "wrong-order"]


def test_a_missing_operation_does_not_hide_a_deadlock(tmp_path: Path) -> None:
    """What is missing counts as given, so the cycle between the other operations is still found."""
    found = judge(tmp_path, "0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0\n")
    assert codes(found) == ["deadlock", "missing-operation"]


def test_the_shortest_cycle_is_named(tmp_path: Path) -> None:
    """Of four devices that are stuck, the two that wait for each other are the reason."""
    lines = ["F0 BW0 F1 BW1", "F0 F1 BW0 BW1", "F0 F1 BW0 BW1", "F0 F1 BW0 BW1"]
    (error,) = judge(tmp_path, "\n".join(lines)).report.errors
    assert error.message == (
        "the orders deadlock: device 0 is stuck at 0BW0, waiting for 1BW0, which comes later on device 1; device 1 is "
        "stuck at 1F1, waiting for 0F1, which comes later on device 0 (so also device 2 at 2F1, device 3 at 3F1)"
    )
    assert (error.line, error.column) == (1, 4)


def test_names_follow_the_letters_of_the_file(tmp_path: Path) -> None:
    """In torch's letters a full backward is B and an input gradient I."""
    (error,) = judge(tmp_path, "0F0,0B0\n1B0,1F0\n").report.errors
    assert (error.operation, error.message) == ("1B0", "1B0 comes before 1F0, which it needs")
    (error,) = judge(tmp_path, "0F0,0I0,0W0\n1F0,1W0,1I0\n").report.errors
    assert (error.operation, error.message) == ("1W0", "1W0 comes before 1I0, which it needs")


def test_letters_that_do_not_fit(tmp_path: Path) -> None:
    """B with W under today's letters is a doubled weight gradient; under the old ones it is right, and that is said."""
    content = "0F0,1F0,1B0,1W0,0B0,0W0\n"
    assert codes(judge(tmp_path, content, dialect="torch")) == ["mixed-backward"]
    found = judge(tmp_path, content)
    assert (found.valid, found.dialect) == (True, "torch-legacy")
    assert [warning.code for warning in found.report.warnings] == ["dialect"]


def test_a_placement_that_is_stated(tmp_path: Path) -> None:
    """Stage 3 is planned on device 0, but the model has it on device 1."""
    found = judge(tmp_path, "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", placement="loop")
    assert codes(found) == ["wrong-device"]
    assert "3F0: stage 3 belongs to device 1, not 0" in {error.message for error in found.report.errors}


def test_a_model_cut_into_more_stages(tmp_path: Path) -> None:
    """A schedule for two stages and a placement for four do not fit, and both counts are named."""
    (error,) = judge(tmp_path, "0F0,0B0\n1F0,1B0\n", placement="0,1,0,1").report.errors
    assert error.code == "stage-count"
    assert "2 stages on 2 devices" in error.message
    assert "4 on 2" in error.message


def test_microbatches_that_are_stated(tmp_path: Path) -> None:
    """The mismatch is one error, not one for every operation of the missing micro-batches."""
    found = judge(tmp_path, SPLIT, microbatches=4)
    assert [error.message for error in found.report.errors] == [
        "the file has 2 micro-batches (0 to 1), but the number stated is 4"
    ]


def test_a_stated_number_of_microbatches_explains_what_is_missing(tmp_path: Path) -> None:
    """Alone, the one operation of micro-batch 1 looks like a slip; with two stated, the others are missing."""
    content = "0F0,0F1,0I0,0W0\n1F0,1I0,1W0\n"
    assert codes(judge(tmp_path, content)) == ["microbatch-out-of-range"]
    assert codes(judge(tmp_path, content, microbatches=2)) == ["missing-operation"]


def test_a_bidirectional_placement_is_recognised(tmp_path: Path) -> None:
    """Each half of the micro-batches goes its own way."""
    found = judge(tmp_path, "0F0 1F1 1BW1 0BW0\n0F1 1F0 1BW0 0BW1\n")
    assert found.valid
    assert found.timeline is not None
    assert found.timeline.problem.placement == placement.bidirectional(2)


def test_a_stage_that_nobody_has(tmp_path: Path) -> None:
    """A gap between the stages is named."""
    assert "missing-stage" in codes(judge(tmp_path, "0F0,0B0\n2F0,2B0\n"))


def test_a_device_without_work(tmp_path: Path) -> None:
    """A line without operations between others is a device that owns no stage."""
    (error,) = judge(tmp_path, "0F0,0B0\n,,\n1F0,1B0\n").report.errors
    assert (error.code, error.device) == ("idle-device", 1)


def test_over_the_cap(tmp_path: Path) -> None:
    """The moment, the operation and what is held then are named, on the one device that is over."""
    (error,) = judge(tmp_path, SPLIT + "2F0,2F1,2B0,2B1\n", memory_cap=(4, 1)).report.errors
    assert (error.code, error.device, error.operation, error.column) == ("over-cap", 1, "2F1", 5)
    assert "the peak of 2, at 2F1, is over the cap of 1; held then: stage 2: micro-batches 0, 1" in error.message


def test_forwards_alone(tmp_path: Path) -> None:
    """They are valid when asked for; otherwise the way to ask is said, once."""
    assert judge(tmp_path, "0F0,0F1\n1F0,1F1\n", forward_only=True).valid
    (error,) = judge(tmp_path, "0F0,0F1\n1F0,1F1\n").report.errors
    assert error.code == "no-backward"
    assert "--forward-only" in error.message


def test_crossed_sends(tmp_path: Path) -> None:
    """Both devices send before they receive: a stall when sends block, and the assumption is named when not."""
    (error,) = judge(tmp_path, CROSSED, forward_only=True).report.errors
    assert (error.code, error.line, error.column) == ("stall", 1, 18)
    assert "device 0 is stuck at 0SEND_F1" in error.message
    assert "device 1 is stuck at 1SEND_F0" in error.message
    found = judge(tmp_path, CROSSED, forward_only=True, transfers="buffered")
    assert found.valid
    assert "a send never blocks" in found.summary()
    mended = CROSSED.replace("0SEND_F1,2RECV_F0", "2RECV_F0,0SEND_F1")
    assert judge(tmp_path, mended, forward_only=True).valid


def test_a_file_with_communication(tmp_path: Path) -> None:
    """Valid as it is."""
    found = judge(tmp_path, COMMUNICATING)
    assert (found.valid, found.report.warnings) == (True, [])


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "column"),
    [
        ("0SEND_F1,", "", "unmatched-receive", 2, 14),
        ("1RECV_F1,", "", "unmatched-send", 1, 18),
        ("0F0,0SEND_F0,", "0SEND_F0,0F0,", "send-before-value", 1, 1),
        ("0SEND_F0,", "0SEND_F0,0SEND_F0,", "duplicate-send", 1, 14),
        ("1RECV_F0,", "1RECV_F0,1RECV_F0,", "duplicate-receive", 2, 10),
        ("1RECV_F0,1F0", "1F0,1RECV_F0", "use-before-receive", 2, 1),
        ("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0", "channel-order", 2, 1),
        ("1SEND_B1,1REDUCE_GRAD", "1SEND_B1", "missing-reduce", 2, 40),
        ("1B1,1SEND_B1,1REDUCE_GRAD", "1REDUCE_GRAD,1B1,1SEND_B1", "early-reduce", 2, 40),
        ("1REDUCE_GRAD", "1REDUCE_GRAD,1REDUCE_GRAD", "extra-reduce", 2, 66),
        ("0SEND_F0", "1SEND_F0", "wrong-device", 1, 5),
        ("0SEND_F0", "7SEND_F0", "stage-out-of-range", 1, 5),
        ("0SEND_F0", "0SEND_F9", "microbatch-out-of-range", 1, 5),
        ("0SEND_F0", "0SEND_B0", "no-peer", 1, 5),
        ("1F0,1RECV_F1,1B0,1SEND_B0,1F1", "1RECV_F1,1F1,1F0,1B0,1SEND_B0", "loss-order", 2, 19),
    ],
)
def test_damaged_communication(old: str, new: str, code: str, line: int, column: int, tmp_path: Path) -> None:
    """Each slip is reported by its code, at its place."""
    assert old in COMMUNICATING
    assert (code, line, column) in places(judge(tmp_path, COMMUNICATING.replace(old, new, 1)))


def test_sharding_is_checked(tmp_path: Path) -> None:
    """A stage is unsharded while it computes, once."""
    good = COMMUNICATING.replace("0F0,", "0UNSHARD,0F0,", 1).replace("0REDUCE_GRAD", "0REDUCE_GRAD,0RESHARD")
    assert judge(tmp_path, good).valid
    assert codes(judge(tmp_path, good.replace("0UNSHARD,0F0,", "0F0,0UNSHARD,"))) == ["sharded"]
    assert codes(judge(tmp_path, good.replace("0UNSHARD,", "0UNSHARD,0UNSHARD,"))) == ["extra-unshard"]
    assert codes(judge(tmp_path, good.replace("0RESHARD", "0RESHARD,0RESHARD"))) == ["extra-reshard"]


def test_sharding_without_reduction_is_an_error(tmp_path: Path) -> None:
    """Where replicas shard a stage, torch reduces its gradient at REDUCE_GRAD and nowhere else."""
    assert codes(judge(tmp_path, "0UNSHARD,0F0,0B0,0RESHARD\n")) == ["missing-reduce"]
    assert judge(tmp_path, "0UNSHARD,0F0,0RESHARD\n", forward_only=True).valid
    assert judge(tmp_path, "0F0,0B0\n").report.warnings == []


def test_no_reduction_at_all_is_a_warning(tmp_path: Path) -> None:
    """Files from before REDUCE_GRAD leave it to others; torch today would not."""
    found = judge(tmp_path, COMMUNICATING.replace(",0REDUCE_GRAD", "").replace(",1REDUCE_GRAD", ""))
    assert found.valid
    assert [warning.code for warning in found.report.warnings] == ["no-reduce"]


def test_the_loss_order_without_communication_is_a_warning(tmp_path: Path) -> None:
    """debubble keeps losses by micro-batch, but torch's runtime would not."""
    found = judge(tmp_path, "0F1,0F0,0B0,0B1\n")
    assert found.valid
    assert [warning.code for warning in found.report.warnings] == ["loss-order"]
    assert codes(judge(tmp_path, "0F1,0F0,0B0,0B1,0REDUCE_GRAD\n")) == ["loss-order"]


def test_the_caret_stands_under_the_token(tmp_path: Path) -> None:
    """For the terminal: the place, the line and a caret."""
    assert judge(tmp_path, "0F0,1F3oops,0B0\n").diagnostics().splitlines()[1:] == [
        f"  --> {tmp_path}/schedule:1:5",
        " 1 | 0F0,1F3oops,0B0",
        "   |     ^^^^^^^",
    ]


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """What a stranger's file holds is shown without its escapes."""
    assert "\x1b" not in str(judge(tmp_path, "0F0 \x1b[2J0F1\n"))


def test_many_errors_are_counted(tmp_path: Path) -> None:
    """The first of a kind are shown, the last of them with a count of the rest."""
    found = judge(tmp_path, "1F0x," * 25)
    assert len(found.report.errors) == 10
    assert found.report.errors[-1].message.endswith("(and 15 more of this kind)")


def test_what_cannot_be_read_has_status_2(tmp_path: Path) -> None:
    """Unreadable is 2, wrong is 1, right is 0."""
    assert judge(tmp_path, "0F0,0B0\n").exit_status == 0
    assert judge(tmp_path, "0F0,0B0,0B0\n").exit_status == 1
    assert judge(tmp_path, "0F0,0X0\n").exit_status == 2
    assert judge(tmp_path, "0F0,0B0\n", transfers="magic").exit_status == 2
    assert verify_file(tmp_path / "none").exit_status == 2


def test_a_profile_for_other_stages(tmp_path: Path) -> None:
    """Both counts are in the message."""
    (error,) = judge(tmp_path, SPLIT, profile=UNIT_BACKWARD).report.errors
    assert error.code == "stage-count"
    assert "the profile has 4 stages" in error.message


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    profile = Profile.uniform(stages=4, forward=1, backward_input=1, backward_weight=1)
    problem = Problem(profile, placement.linear(4), 4, memory_cap=4)
    bound = Certificate(lower_bound=0.0, name="none", proof="solver")
    path = tmp_path / "plan.json"
    Plan.build(problem, named_schedule("1f1b", problem), bound).save(path)
    return path


def test_a_plan(plan_file: Path) -> None:
    """A plan is judged with what it holds."""
    found = verify_file(plan_file)
    assert (found.valid, found.dialect, found.exit_status) == (True, "plan", 0)


def test_a_plan_for_another_model(plan_file: Path) -> None:
    """A placement that is stated goes before the plan's own."""
    found = verify_file(plan_file, placement="3,2,1,0")
    assert codes(found) == ["wrong-device"]
    assert "0F0: stage 0 belongs to device 3, not 0" in found.report.errors[0].message


def test_a_plan_that_was_changed(plan_file: Path) -> None:
    """A dropped send is found in the streams, and the digest no longer fits."""
    plan_file.write_text(plan_file.read_text().replace('"send 0F0 >1", ', "", 1).replace('"send 0F0 >1",', "", 1))
    assert {"digest", "unmatched-receive"} <= set(codes(verify_file(plan_file)))


@pytest.mark.parametrize("content", ["0f0,0b0\n", "f0 f1 bw0 bw1\nf0 bw0 f1 bw1\n", "0f0,0i0,0w0,0send_f0\n"])
def test_small_letters_are_one_error(tmp_path: Path, content: str) -> None:
    """A file whose letters are not capitals gets one hint, not one error per entry."""
    found = judge(tmp_path, content)
    assert [(error.code, error.line, error.column) for error in found.report.errors] == [("bad-token", 1, 1)]
    assert "capitals" in found.report.errors[0].message


def test_a_file_that_is_no_schedule_is_one_error(tmp_path: Path) -> None:
    """Any other text file is refused in one sentence; a stated dialect still says what is wrong with each entry."""
    content = "node1 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=2.5\n" * 9
    assert len(judge(tmp_path, content).report.errors) == 1
    assert len(judge(tmp_path, content, dialect="torch").report.errors) == 10


def test_the_summary_has_units(tmp_path: Path) -> None:
    """Numbers are printed in the units of the profile."""
    profile = Profile(
        stages=(Stage(forward=1, backward_input=1, backward_weight=1),), time_unit="ms", memory_unit="MiB"
    )
    text = judge(tmp_path, "F0 BW0\n", profile=profile).summary()
    assert "makespan     3 ms; span 3 ms" in text
    assert "peak memory  1 MiB" in text
