"""Bad requests and bad files: a clear message, exit status 2 (1 where the problem is infeasible), never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMPILE = ("compile", "--devices", 4, "--forward", 1, "--backward-input", 1, "--backward-weight", 1)
PROFILE = {
    "format": "debubble.profile/1",
    "stages": [{"forward": 1, "backward_input": 1, "backward_weight": 1}] * 4,
}


def _profile(path: Path, **changes: Any) -> str:
    file = path / "profile.json"
    file.write_text(json.dumps(PROFILE | changes))
    return str(file)


def _refused(result: Any, *words: str) -> None:
    """Status 2, the words on standard error, no traceback, nothing on standard output."""
    assert result.status == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--forward", "nan"), ("--forward", "finite")),
        (("--forward", "inf"), ("--forward", "finite")),
        (("--backward-input", "-1"), ("--backward-input", "at least 0")),
        (("--comm", "soon"), ("--comm", "not a number")),
        (("--devices", 0), ("devices", "between 1 and", "not 0")),
        (("--devices", 10**9), ("devices", "1000000000")),
        (("-m", 0), ("micro-batches", "at least 1")),
        (("-m", 10**9), ("1000000000", "operations")),
        (("--memory-cap", "much"), ("--memory-cap", "not a number")),
        (("--memory-cap", "-3"), ("--memory-cap", "at least 0")),
        (("--memory-cap", "4,4"), ("2 caps for 4 devices",)),
        (("--memory", "1,0"), ("--memory", "3 numbers")),
        (("--memory", "1,0,0"), ("sum to 0",)),
        (("--time-limit", "nan"), ("--time-limit", "finite")),
        (("--schedule", "zigzag"), ("zigzag", "1f1b", "zb-h1")),
        (("--placement", "ring"), ("ring", "linear", "loop")),
        (("--placement", "0,1,x,3"), ("0,1,x,3", "0,1,1,0")),
        (("--placement", "0,1,1,1000000000"), ("1000000000",)),
        (("--placement", "0,1,2"), ("3 devices", "4")),
        (("--chunks", 2), ("linear", "one chunk")),
        (("--chunks", 0, "--placement", "loop"), ("chunks", "between 1 and")),
        (("--objective", "speed"), ("makespan", "span")),
        (("--backend", "abacus"), ("cbc",)),
        (("--output", "/no/such/place/plan.json"), ("/no/such/place",)),
        (("--output", "/"), ("directory",)),
        (("--group-size", 4), ("group size", "interleaved")),
        (("--group-size", 4, "--schedule", "1f1b"), ("group size", "interleaved")),
        (("--time-limit", 0), ("--time-limit", "positive")),
        (("--time-limit", -1), ("--time-limit", "positive")),
        (("--recompute", "some"), ("some", "none, all")),
        (("--bogus",), ("--bogus",)),
    ],
)
def test_a_bad_option_is_refused(debubble: Any, options: tuple[Any, ...], words: tuple[str, ...]) -> None:
    """The message names what was wrong and what would be right."""
    _refused(debubble(*COMPILE, "-m", 8, *options), *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("empty",)),
        (b'{"format": "debubble.profile/1", "stages": [', ("profile.json:1:",)),
        (b"\xff\xfe\x00", ("profile.json",)),
        (b"[1, 2]", ("profile.json", "object")),
        (json.dumps(PROFILE | {"format": "debubble.profile/9"}).encode(), ("version 9", "newer")),
        (json.dumps(PROFILE | {"speed": 3}).encode(), ("speed",)),
        (json.dumps(PROFILE | {"comm": "fast"}).encode(), ("comm",)),
        (json.dumps(PROFILE | {"comm": -1}).encode(), ("comm", "at least 0")),
        (json.dumps(PROFILE | {"stages": []}).encode(), ("stages",)),
        (json.dumps(PROFILE | {"comm": float("nan")}).encode(), ("profile.json:1:",)),
        (b"[" * 100_000, ("profile.json",)),
    ],
    ids=[
        "empty",
        "truncated",
        "binary",
        "list",
        "newer",
        "unknown-key",
        "text",
        "negative",
        "no-stages",
        "nan",
        "deep",
    ],
)
def test_a_bad_profile_is_refused(debubble: Any, tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    """The message names the file and the key or the place."""
    file = tmp_path / "profile.json"
    file.write_bytes(content)
    _refused(debubble("compile", file, "-m", 8), *words)


def test_a_missing_file_is_refused(debubble: Any, tmp_path: Path) -> None:
    """The message names the file."""
    _refused(debubble("compile", tmp_path / "none.json", "-m", 8), "none.json", "No such file")


def test_a_directory_is_no_profile(debubble: Any, tmp_path: Path) -> None:
    """A directory given as a file is refused like an unreadable file."""
    _refused(debubble("compile", tmp_path, "-m", 8), str(tmp_path), "directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_directory_is_refused(debubble: Any, tmp_path: Path) -> None:
    """A file behind a directory without rights is refused by name."""
    file = _profile(tmp_path)
    tmp_path.chmod(0)
    try:
        _refused(debubble("compile", file, "-m", 8), "profile.json", "Permission denied")
    finally:
        tmp_path.chmod(0o700)


def test_two_profile_files_are_refused(debubble: Any, tmp_path: Path) -> None:
    """The message names both."""
    _refused(debubble("compile", "a.json", "b.json", "-m", 8), "a.json", "b.json")


def test_a_profile_and_costs_are_refused(debubble: Any, tmp_path: Path) -> None:
    """A file and costs on the command line are two profiles."""
    _refused(debubble("compile", _profile(tmp_path), "--forward", 1, "-m", 8), "two profiles", "--forward")


def test_no_profile_is_refused(debubble: Any) -> None:
    """The message says which options would make one."""
    _refused(debubble("compile", "--devices", 4, "--forward", 1, "-m", 8), "--backward-input", "--backward-weight")


def test_devices_that_contradict_the_profile_are_refused(debubble: Any, tmp_path: Path) -> None:
    """A linear placement has as many devices as stages."""
    _refused(debubble("compile", _profile(tmp_path), "--devices", 3, "-m", 8), "4 stages", "3 devices")


def test_devices_that_contradict_the_placement_are_refused(debubble: Any, tmp_path: Path) -> None:
    """The list of a placement says how many devices there are."""
    _refused(debubble("compile", _profile(tmp_path), "--placement", "0,1,1,0", "--devices", 3, "-m", 8), "2 devices")


def test_stages_that_do_not_divide_are_refused(debubble: Any, tmp_path: Path) -> None:
    """Four stages are not three chunks on each of some devices."""
    _refused(
        debubble("compile", _profile(tmp_path), "--placement", "v", "--chunks", 3, "-m", 8), "4 stages", "3 chunks"
    )


def test_a_plan_is_no_profile(debubble: Any, plan: str) -> None:
    """A file of another kind is refused by its format."""
    _refused(debubble("compile", plan, "-m", 8), "debubble.plan/1", "debubble.profile/1")


def test_no_command_is_a_usage_error(debubble: Any) -> None:
    """The message says how to get help."""
    _refused(debubble(), "Missing command", "--help")


def test_a_plan_for_a_thousand_million_devices_is_refused(debubble: Any, plan: str) -> None:
    """A file cannot make the placement's check go through more devices than it has stages."""
    content = json.loads(Path(plan).read_text())
    content["placement"]["devices"] = 10**9
    Path(plan).write_text(json.dumps(content))
    result = debubble("export", plan, "--format", "text")
    _refused(result, "owns no stage")


def test_an_impossible_cap_exits_1_with_the_least_cap(debubble: Any) -> None:
    """Infeasible is not misunderstood: status 1, and the least cap that would do."""
    result = debubble(*COMPILE, "-m", 4, "--memory", "2,-1,-1", "--memory-cap", 1)
    assert result.status == 1
    assert "stage 0" in result.err
    assert "at least 2" in result.err


def test_an_impossible_cap_as_json(debubble: Any) -> None:
    """The object has the status, the reason and the least caps."""
    result = debubble(*COMPILE, "-m", 4, "--memory", "2,-1,-1", "--memory-cap", 1, "--json")
    assert result.status == 1
    assert result.json["status"] == "infeasible"
    assert "at least 2" in result.json["reason"]
    assert result.json["least_cap"] == [2, 2, 2, 2]
    assert result.json["errors"][0]["code"] == "infeasible"


def test_a_named_schedule_over_the_cap_exits_1(debubble: Any) -> None:
    """GPipe under a cap of four micro-batches is invalid, and the message says on which device."""
    result = debubble(*COMPILE, "-m", 8, "--schedule", "gpipe", "--memory-cap", 4)
    assert result.status == 1
    assert "device 0" in result.err
    assert "over the cap of 4" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "--json"),
        ("compile", "--json", "--forward", "nan", "-m", "4"),
        ("compile", "--json", "missing.json", "-m", "4"),
        ("compile", "--json", "--no-such-option"),
        ("compare", "--json", "missing.json", "-m", "4"),
        ("no-such-command", "--json"),
    ],
)
def test_json_is_printed_on_errors_too(debubble: Any, words: tuple[str, ...]) -> None:
    """Exactly one object, whose errors have a code and a message."""
    result = debubble(*words)
    assert result.status == 2
    assert result.out.count("\n") == 1
    assert result.json["errors"][0]["code"]
    assert result.json["errors"][0]["message"]


def test_json_errors_have_the_place(debubble: Any, tmp_path: Path) -> None:
    """An error in a file comes with file, line and column."""
    file = tmp_path / "profile.json"
    file.write_text('{"format": "debubble.profile/1",\n "stages": }')
    error = debubble("compile", file, "-m", 8, "--json").json["errors"][0]
    assert (error["source"], error["line"], error["column"]) == (str(file), 2, 12)


def test_a_failed_compile_leaves_no_plan(debubble: Any, tmp_path: Path) -> None:
    """An infeasible problem writes nothing."""
    debubble(*COMPILE, "-m", 4, "--memory", "2,-1,-1", "--memory-cap", 1, "-o", tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_traceback(debubble: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted search ends with one line and status 1."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("debubble.solver.search.search", interrupted)
    result = debubble(*COMPILE, "-m", 8)
    assert result.status == 1
    assert result.err.split("\n")[-2:] == ["error: interrupted", ""]


def test_a_mistake_of_ours_is_one_line(debubble: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is named without a traceback."""

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("one by nought")

    monkeypatch.setattr("debubble.solver.search.search", broken)
    monkeypatch.delenv("DEBUBBLE_DEBUG", raising=False)
    result = debubble(*COMPILE, "-m", 8, "--json")
    assert result.status == 1
    assert "one by nought" in result.json["errors"][0]["message"]


def test_a_closed_pipe_is_quiet(plan: str) -> None:
    """A reader that leaves early gets no complaint on standard error."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "debubble", "show", plan]
    finished = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert finished.returncode == 1
    assert finished.stderr == b""


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("compile", "--help"), ("show", "-h")])
def test_help_exits_0(debubble: Any, words: tuple[str, ...]) -> None:
    """Asking for help is not an error."""
    result = debubble(*words)
    assert result.status == 0
    assert result.out


def test_a_missing_choice_is_one_error(debubble: Any, tmp_path: Path) -> None:
    """The choices stand in one line behind one `error:`."""
    assert debubble("export", tmp_path / "plan.json").err.count("error:") == 1


def test_a_placement_is_named_as_it_was_given(debubble: Any) -> None:
    """A list that is a V is still called by its list."""
    _refused(debubble(*COMPILE, "-m", 4, "--placement", "0,1,1,0"), "placement 0,1,1,0 is for 2 devices, not 4")
