"""`debubble verify` and `debubble lower` on plans and on hand-written schedules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from debubble import Plan

GOOD = "F0 F1 .   .   .   BW0 BW1\n.  F0 F1  .   BW0 BW1\n.  .  F0  BW0 F1  BW1\n"
KEYS = {
    *("valid", "errors", "warnings", "dialect", "devices", "stages", "microbatches", "makespan", "span"),
    *("peak_memory", "bubble_ratio", "idle_fraction"),
}


def _inverted(microbatches: int) -> str:
    """A teaching text's 1F1B with the warm-up the wrong way round: stage + 1 forwards on each of four stages."""
    lines = []
    for stage in range(4):
        warm_up = min(stage + 1, microbatches)
        words = [f"F{j}" for j in range(warm_up)]
        for j in range(microbatches):
            words.append(f"BW{j}")
            if warm_up + j < microbatches:
                words.append(f"F{warm_up + j}")
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def _file(path: Path, content: str) -> str:
    file = path / "schedule.txt"
    file.write_text(content)
    return str(file)


def test_a_valid_schedule(debubble: Any, tmp_path: Path) -> None:
    """Status 0, the makespan, and both bubbles by name."""
    result = debubble("verify", _file(tmp_path, GOOD))
    assert result.status == 0
    assert "valid" in result.out
    assert "makespan" in result.out
    assert "12" in result.out


def test_the_json_keys(debubble: Any, tmp_path: Path) -> None:
    """Every key that scripts rely on is there, and the drawn makespan where idle cells are drawn."""
    result = debubble("verify", _file(tmp_path, GOOD), "--json")
    assert result.out.count("\n") == 1
    assert result.json.keys() >= KEYS | {"drawn_makespan"}
    assert result.json["valid"] is True


def test_recomputation_is_judged_and_kept_in_the_plan(debubble: Any, tmp_path: Path) -> None:
    """Every BW takes a forward longer; the plan made of the schedule says so, and is judged so."""
    file, plan = _file(tmp_path, GOOD), str(tmp_path / "plan.json")
    found = debubble("verify", file, "--recompute", "all", "--json").json
    assert (found["makespan"], found["peak_memory"]) == (16, [1, 1, 1])
    assert debubble("lower", file, "--recompute", "all", "-o", plan, "--json").json["recompute"] == "all"
    assert debubble("verify", plan, "--json").json["makespan"] == 16


def test_inverted_warm_up_with_one_microbatch_is_valid(debubble: Any, tmp_path: Path) -> None:
    """With one micro-batch there is no warm-up to be wrong: four forwards of 1 and four backwards of 2."""
    found = debubble("verify", _file(tmp_path, _inverted(1)), "--json")
    assert found.status == 0
    assert found.json["makespan"] == 12


@pytest.mark.parametrize("microbatches", [2, 8])
def test_inverted_warm_up_deadlocks(debubble: Any, tmp_path: Path, microbatches: int) -> None:
    """Device 0 is stuck at its first backward, the others at the forward of micro-batch 1."""
    result = debubble("verify", _file(tmp_path, _inverted(microbatches)), "--json")
    assert result.status == 1
    (error,) = result.json["errors"]
    assert error["code"] == "deadlock"
    for words in ("device 0 is stuck at 0BW0", "device 1 is stuck at 1F1"):
        assert words in error["message"]
    for words in ("device 2 at 2F1", "device 3 at 3F1"):
        assert words in error["message"]


def test_one_device_over_its_cap_is_invalid(debubble: Any, plan: str) -> None:
    """A cap by device is judged by device, and the table shows peak and cap side by side."""
    result = debubble("verify", plan, "--memory-cap", "4,4,4,2")
    assert result.status == 1
    assert "over-cap" in result.err
    rows = [line.split() for line in result.out.splitlines() if line[:1].isdigit()]
    assert [words[2:4] for words in rows] == [["4", "4"], ["4", "4"], ["4", "4"], ["4", "2"]]


def test_a_plan_is_judged_by_itself(debubble: Any, plan: str) -> None:
    """The dialect is plan, and it is valid."""
    found = debubble("verify", plan, "--json").json
    assert (found["valid"], found["dialect"], found["makespan"]) == (True, "plan", 283)


def test_a_missing_file(debubble: Any, tmp_path: Path) -> None:
    """Status 2, and with --json an object that is not valid."""
    result = debubble("verify", tmp_path / "none.csv", "--json")
    assert result.status == 2
    assert result.json["valid"] is False
    assert result.json["errors"]


def test_an_unknown_profile(debubble: Any, tmp_path: Path) -> None:
    """A profile that cannot be read is status 2 too, with the object."""
    result = debubble("verify", _file(tmp_path, GOOD), "--profile", tmp_path / "none.json", "--json")
    assert result.status == 2
    assert result.json["valid"] is False


def test_an_unreadable_token_has_its_place(debubble: Any, tmp_path: Path) -> None:
    """Line and column of what is no operation."""
    result = debubble("verify", _file(tmp_path, "F0 BW0\nF0 oops\n"), "--json")
    assert result.status == 2
    assert (result.json["errors"][0]["line"], result.json["errors"][0]["column"]) == (2, 4)


def test_lower_keeps_the_orders(debubble: Any, tmp_path: Path) -> None:
    """What was written by hand is what the plan computes."""
    path = tmp_path / "plan.json"
    assert debubble("lower", _file(tmp_path, GOOD), "-o", path).status == 0
    assert [str(step) for step in Plan.load(path).schedule.orders[2]] == ["2F0", "2BW0", "2F1", "2BW1"]


def test_lower_refuses_a_deadlock(debubble: Any, tmp_path: Path) -> None:
    """Status 1 and no plan."""
    path = tmp_path / "plan.json"
    result = debubble("lower", _file(tmp_path, _inverted(2)), "-o", path)
    assert result.status == 1
    assert "deadlock" in result.err
    assert not path.exists()


def test_lower_with_costs(debubble: Any, tmp_path: Path) -> None:
    """A profile gives the plan its times."""
    profile = tmp_path / "profile.json"
    stage = '{"forward": 2, "backward_input": 2, "backward_weight": 2}'
    profile.write_text(f'{{"format": "debubble.profile/1", "stages": [{stage}, {stage}, {stage}]}}')
    path = tmp_path / "plan.json"
    found = debubble("lower", _file(tmp_path, GOOD), "--profile", profile, "-o", path, "--json").json
    assert (found["makespan"], found["plan"]) == (24, str(path))


CROSSED = (
    "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3F1\n"
)
"""Two devices that each send before they receive."""


def test_crossed_sends_are_flagged(debubble: Any, tmp_path: Path) -> None:
    """Both block under rendezvous transfers, and the message says where."""
    result = debubble("verify", _file(tmp_path, CROSSED), "--forward-only", "--json")
    assert result.status == 1
    message = result.json["errors"][0]["message"]
    assert "device 0 is stuck at 0SEND_F1" in message
    assert "device 1 is stuck at 1SEND_F0" in message


def test_crossed_sends_pass_when_buffered(debubble: Any, tmp_path: Path) -> None:
    """Where a send never blocks, the same file is fine."""
    assert debubble("verify", _file(tmp_path, CROSSED), "--forward-only", "--transfers", "buffered").status == 0


def test_a_lowered_exchange_is_safe(debubble: Any, tmp_path: Path) -> None:
    """The orders of such a file, with transfers of ours, become a plan that verification accepts under rendezvous."""
    orders = "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1\n1F0 1F1 3F0 3BW0 3F1 3BW1 1BW0 1BW1\n"
    path = tmp_path / "plan.json"
    assert debubble("lower", _file(tmp_path, orders), "-o", path).status == 0
    assert debubble("verify", path).status == 0


@pytest.mark.parametrize("command", [("verify",), ("show",), ("lower", "-o", "plan.json")])
def test_standard_input_is_read(
    debubble: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A pipe gives its content once, and every command can do with that."""
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        assert debubble(*command, "-").status == 0
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reading)


def test_a_pipe_is_read(debubble: Any) -> None:
    """A pipe by its path is as good as a file."""
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    try:
        assert debubble("verify", f"/dev/fd/{reading}").status == 0
    finally:
        os.close(reading)


def test_json_leaves_the_diagnostics_on_standard_error(debubble: Any, tmp_path: Path) -> None:
    """As for every other command, the object says them too."""
    result = debubble("verify", _file(tmp_path, "F0\nF0 BW0\n"), "--json")
    assert result.json["errors"]
    assert "error[missing-operation]" in result.err


@pytest.mark.parametrize("command", ["export", "explain"])
def test_a_schedule_is_no_plan(debubble: Any, tmp_path: Path, command: str) -> None:
    """The error says how to make one of it."""
    more = ("--format", "text") if command == "export" else ()
    assert "debubble lower makes a plan" in debubble(command, _file(tmp_path, GOOD), *more).err


def test_what_torch_cannot_say_is_said(debubble: Any, tmp_path: Path) -> None:
    """Exporting a plan that recomputes to torch's CSV warns; the text form keeps the recomputation."""
    plan, out = str(tmp_path / "plan.json"), str(tmp_path / "out.txt")
    debubble("lower", _file(tmp_path, GOOD), "--recompute", "all", "-o", plan)
    assert "cannot say what is recomputed" in debubble("export", plan, "--format", "torch-csv").err
    debubble("export", plan, "--format", "text", "-o", out)
    assert debubble("verify", out, "--json").json["makespan"] == 16
