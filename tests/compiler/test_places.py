"""Places: where values stand in JSON of any layout."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler.places import Places, steps

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def paths(value: Any) -> list[tuple[str | int, ...]]:
    """The path of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *path) for key, member in inside for path in paths(member))]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(JSON, st.sampled_from([None, 0, 3]), st.booleans())
def test_every_value_is_where_it_says(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Decoding from the place of a path gives what the path leads to."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    lines = text.split("\n")
    for path in paths(value):
        expected = value
        for key in path:
            expected = expected[key]
        place = Places(lambda: text).of(*path)
        rest = "\n".join(lines[place["line"] - 1 :])[place["column"] - 1 :]
        assert json.JSONDecoder().raw_decode(rest)[0] == expected


@pytest.mark.parametrize("path", [("b",), ("a", 9), ("a", "x"), ("a", 0, 0)])
def test_what_does_not_exist_has_the_place_around_it(path: tuple[str | int, ...]) -> None:
    """A path that ends too early still leads somewhere."""
    assert Places(lambda: '{"a": [1]}').of(*path)["line"] == 1


def test_paths_of_messages() -> None:
    """Keys and indices of a path as msgspec writes it."""
    assert steps(".stages[2].memory.forward") == ["stages", 2, "memory", "forward"]
    assert steps(".witness[...].x") == ["witness"]
