"""Profiles: validation names the offending key, files round-trip and are refused in words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import stages

from debubble.compiler.errors import InputError
from debubble.compiler.profile import MAX_STAGES, Link, Memory, Profile, Stage

STAGE = '{"forward": 1, "backward_input": 1, "backward_weight": 1}'


def written(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(body)
    return path


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    held=st.lists(stages(), min_size=1, max_size=4),
    comm=st.sampled_from([0.5, Link(1.0, 2.0), ((0.0, 1.0), (2.0, 0.0))]),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, held: list[Stage], comm: float | Link) -> None:
    """A saved profile loads as the same profile."""
    profile = Profile(stages=tuple(held), comm=comm, time_unit="ms", memory_cap=(3.0, 4.0))
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profile.save(path)
    assert Profile.load(path) == profile


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("", "empty"),
        ("{", "too early"),
        ('{"format": "debubble.profile/1", "stages": [', "too early"),
        ('{"format": "debubble.profile/1"}', "stages"),
        ("[1, 2]", "Expected `object`"),
        ('{"stages": []}', "format"),
        ('{"format": "debubble.plan/1"}', "'debubble.plan/1' file"),
        ('{"format": "debubble.profile/2", "stages": []}', "newer"),
        ('{"format": "debubble.profile/1", "stages": []}', "at least one stage"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE}], "com": 1}}', "unknown field `com`"),
        ('{"format": "debubble.profile/1", "stages": [{"forward": "1"}]}', r"\$.stages\[0\].forward"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE}], "memory_cap": "8 GiB"}}', "memory_cap"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE.replace("1", "NaN", 1)}]}}', "line 1|:1:"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE.replace("1", "1e999", 1)}]}}', "out of range"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE.replace("1", "-3", 1)}]}}', r"stages\[0\].forward"),
        (f'{{"format": "debubble.profile/1", "stages": [{STAGE}], "comm": [[0, 1]]}}', "square"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, body: str, part: str) -> None:
    """Every malformed profile gives an InputError with the file's name and what is wrong."""
    path = written(tmp_path, body)
    with pytest.raises(InputError, match=part) as caught:
        Profile.load(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    """A missing file and a directory are unreadable, not tracebacks."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            Profile.load(path)


def test_malformed_json_names_line_and_column(tmp_path: Path) -> None:
    """A syntax error is placed by line and column."""
    with pytest.raises(InputError) as caught:
        Profile.load(written(tmp_path, '{\n  "format": oops\n}'))
    assert (caught.value.line, caught.value.column) == (2, 13)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """A file of 100,000 brackets is an error, not a crash."""
    with pytest.raises(InputError):
        Profile.load(written(tmp_path, '{"format": "debubble.profile/1", "stages": ' + "[" * 100_000))


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_bad_numbers_are_named(value: float) -> None:
    """Non-finite, negative and absurdly large costs are refused with their key."""
    with pytest.raises(InputError, match=r"stages\[0\].backward_weight"):
        Profile.uniform(stages=2, forward=1, backward_input=1, backward_weight=value)


def test_memory_must_sum_to_zero() -> None:
    """What a forward takes, the backwards free."""
    with pytest.raises(InputError, match=r"stages\[0\].memory.*sum to 0"):
        Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1, memory=(2, -1, 0))


def test_memory_is_never_less_than_nothing() -> None:
    """B cannot free more than F took."""
    with pytest.raises(InputError, match="less is held than nothing"):
        Profile.uniform(stages=1, forward=1, backward_input=1, backward_weight=1, memory=(1, -2, 1))


def test_measured_memory_of_floats_is_accepted() -> None:
    """Changes that sum to 0 up to rounding are fine."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1, memory=Memory(0.3, -0.1, -0.2))
    assert Profile(stages=(stage,)).stages[0].memory.backward == pytest.approx(-0.3)


def test_too_many_stages_are_refused() -> None:
    """A billion stages are not built."""
    with pytest.raises(InputError, match="between 1 and"):
        Profile.uniform(stages=10**9, forward=1, backward_input=1, backward_weight=1)


@pytest.mark.parametrize("wrong", [{"forward": "a"}, {"comm": None}, {"stages": "4"}, {"memory_cap": [1.0, 2.0]}])
def test_what_is_no_number_is_refused(wrong: dict[str, object]) -> None:
    """As a request that cannot be understood, not as a TypeError."""
    with pytest.raises(InputError):
        Profile.uniform(**{"stages": 2, "forward": 1, "backward_input": 1, "backward_weight": 1} | wrong)  # type: ignore[arg-type]


def test_a_list_of_too_many_stages_is_refused() -> None:
    """A file cannot ask for more stages than anything here could hold."""
    stage = Stage(forward=1, backward_input=1, backward_weight=1)
    with pytest.raises(InputError, match="are more than"):
        Profile(stages=(stage,) * (MAX_STAGES + 1))
