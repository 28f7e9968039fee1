"""Files from strangers: whatever they hold, there is a judgement, and never a traceback."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debubble.compiler.interchange import DIALECTS, Judgement, verify_file

CORPUS = {
    "text": "# placement: linear\n# microbatches: 2\nF0 F1 . BW0 BW1\n. F0 BW0 F1 B1 W1\n",
    "pairs": "0F0 3F0 0F1+3BW0 3F1 3BW1 0BW0 0BW1\n1F0 2F0 1F1 2F1 2BW0 1BW0 2BW1 1BW1\n",
    "torch": "0F0,,0F1,1F0,1F1,1I0,1W0,1B1,0B0,0B1\r\n",
    "communication": (
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"
    ),
    "overlap": "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1\n",
    "printed": "        Rank 0 Rank 1\nStep 0: F0_s0  None\nStep 1:        F0_s1\nStep 2: None   B0_s1\nStep 3: B0_s0",
    "megatron": "[1, 1, 2, 2, -2, -2, -1, -1]\n[1, 1, 2, 2, -2, -2, -1, -1]\n",
}
PIECES = st.sampled_from(
    ["0F0", "1F0", "F0", "2B1", "0W1", "0BW0", "0I0", "0F0+1B1", "(0F0;0B1)OVERLAP_F_B", "0SEND_F0", "1RECV_F0",
     "1SEND_B0", "0RECV_B0", "0UNSHARD", "0RESHARD", "0REDUCE_GRAD", "F0_s1", "None", "1", "-1", "999999999F999999999",
     "7F7", "Rank 0", "Step 0:", "# placement: ", "# microbatches: ", "v", "loop", "0,1,0", "a|(b", "{", '"', "\x00",
     "é", "\u2028"]
)  # fmt: skip
SEPARATORS = st.sampled_from([" ", ",", "\n", "\r\n", "\t", ";", "", ".", ", "])
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
