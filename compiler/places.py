"""Places: the line and the column of a value in a JSON file, for messages about what it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from itertools import islice

_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r'[^\s"]+')
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]", re.ASCII)
_DECODER = json.JSONDecoder()


class Places:
    """The places in one file, whose text is `read` when the first is asked for."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    @cached_property
    def _text(self) -> str:
        return self._read()

    def of(self, *path: str | int, word: int | None = None) -> dict[str, int]:
        """`line` and `column` (from 1) of the value that keys and indices lead to, or of a word in that text.

        Where a part of the path does not exist, the place is that of the value around it.
        """
        text = self._text
        try:
            offset = _blank(text, 0)
            for key in path:
                inside = _member(text, offset, key)
                if inside is None:
                    break
                offset = inside
            else:
                if word is not None:
                    offset = next((found.start() for found in islice(_WORD.finditer(text, offset), word, None)), offset)
        except (IndexError, ValueError, RecursionError):
            return {}  # no JSON that Python reads too
        return {"line": text.count("\n", 0, offset) + 1, "column": offset - text.rfind("\n", 0, offset)}


def steps(path: str) -> list[str | int]:
    """The keys and indices of a path such as `$.stages[2].forward`."""
    return [key or int(index) for key, index in _STEP.findall(path.partition("[.")[0])]


def _blank(text: str, offset: int) -> int:
    match = _BLANK.match(text, offset)
    assert match is not None
    return match.end()


def _member(text: str, offset: int, key: str | int) -> int | None:
    """Where the member of the object, or the item of the list, that begins at an offset begins itself."""
    if text[offset] != ("{" if isinstance(key, str) else "["):
        return None
    offset, number = _blank(text, offset + 1), 0
    while text[offset] not in "]}":
        name: str | int = number
        if isinstance(key, str):
            name, offset = _DECODER.raw_decode(text, offset)
            offset = _blank(text, _blank(text, offset) + 1)
        if name == key:
            return offset
        _, offset = _DECODER.raw_decode(text, offset)
        offset = _blank(text, offset)
        if text[offset] == ",":
            offset = _blank(text, offset + 1)
        number += 1
    return None
