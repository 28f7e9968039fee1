"""Numbers of callers: what is none is refused by name, not by a TypeError."""

from __future__ import annotations

import numpy as np
import pytest

from debubble.compiler.errors import InputError
from debubble.compiler.numbers import check_count, check_real


@pytest.mark.parametrize("value", ["8", 2.5, None, 0, -1, 2.0])
def test_what_is_no_count_is_refused(value: object) -> None:
    """The message says what was to be counted."""
    with pytest.raises(InputError, match="the number of stages must be"):
        check_count("stages", value)


def test_a_count_has_a_largest_value() -> None:
    """Both ends are said."""
    with pytest.raises(InputError, match="between 1 and 4, not 5"):
        check_count("stages", 5, most=4)


@pytest.mark.parametrize("value", [1, np.int64(3)])
def test_counts_of_numpy_are_counts(value: object) -> None:
    """Whole numbers come from arrays, too."""
    check_count("stages", value)


@pytest.mark.parametrize("value", ["a", None, [1.0]])
def test_what_is_no_number_is_refused(value: object) -> None:
    """The message names the key."""
    with pytest.raises(InputError, match="comm: must be a number"):
        check_real("comm", value)
