"""Files from strangers: whatever they hold, there is a judgement, and never a traceback."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from corpus import PIECES as PIECES_OF_TEXT
from corpus import SCHEDULES as CORPUS
from corpus import SEPARATORS as SEPARATORS_OF_TEXT
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler.interchange import DIALECTS, Judgement, verify_file

PIECES = st.sampled_from(PIECES_OF_TEXT)
SEPARATORS = st.sampled_from(SEPARATORS_OF_TEXT)
SOUP = st.lists(st.tuples(PIECES, SEPARATORS), max_size=40).map(lambda parts: "".join(map("".join, parts)))


def judge(content: bytes, **options: object) -> Judgement:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule"
        path.write_bytes(content)
        found = verify_file(path, **options)  # type: ignore[arg-type]
    json.dumps(found.as_json())
    str(found)
    return found


@settings(max_examples=300, derandomize=True, deadline=None)
@given(SOUP | st.text(max_size=60), st.sampled_from(["auto", *DIALECTS]), st.booleans())
def test_soup_of_tokens(content: str, dialect: str, forward_only: bool) -> None:
    """Tokens of all dialects in any order, under any dialect, are judged."""
    judge(content.encode(), dialect=dialect, forward_only=forward_only)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes(content: bytes) -> None:
    """Bytes that are not even text are judged."""
    judge(content)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.sampled_from(sorted(CORPUS)), st.lists(st.tuples(st.integers(0, 200), PIECES | SEPARATORS), max_size=4))
def test_valid_files_with_something_inserted(name: str, insertions: list[tuple[int, str]]) -> None:
    """Small slips in valid files are judged."""
    content = CORPUS[name]
    for place, piece in insertions:
        content = content[:place] + piece + content[place:]
    judge(content.encode())


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_is_valid(name: str) -> None:
    """The files that are cut and damaged here are valid to begin with."""
    found = judge(CORPUS[name].encode())
    assert found.valid, str(found)


@pytest.mark.parametrize("name", CORPUS)
def test_every_cut(name: str) -> None:
    """A file cut at any byte is judged."""
    content = CORPUS[name].rstrip().encode()
    for end in range(len(content)):
        judge(content[:end])
