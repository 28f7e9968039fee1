"""Layer tables as CSV."""

from __future__ import annotations

import pytest

from debubble.compiler.errors import InputError
from debubble.compiler.interchange.layer_table import read
from debubble.compiler.profile import Memory

HEADER = "name, forward, backward_input, backward_weight, memory_forward, memory_backward_weight, letter\n"


def test_a_line_is_a_layer() -> None:
    """Cells are read as numbers, an empty one is the default."""
    first, second = read(HEADER + "embedding,0.5,0,0.7,16,-16,E\n\nblock.0,4,5,3,,,t\n").layers
    assert (first.name, first.forward, first.backward_weight, first.letter) == ("embedding", 0.5, 0.7, "E")
    assert first.memory == Memory(16, 0, -16)
    assert second.memory == Memory()


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("name,forwards\n", "unknown column 'forwards'", 1),
        (HEADER + "a,1,1\n", "3 cells in 7 columns", 2),
        (HEADER + "a,one,1,1,1,-1,t\n", "forward", 2),
        (HEADER + "a,1,1,,1,-1,t\n", "backward_weight", 2),
        (HEADER + 'a,"1,1\n', "not a CSV file", 2),
        (HEADER, "at least one layer", None),
    ],
)
def test_what_is_no_table_is_refused(text: str, words: str, line: int | None) -> None:
    """The message says what is wrong, and in which line."""
    with pytest.raises(InputError, match=words) as caught:
        read(text)
    assert caught.value.line == line
