"""Figures with matplotlib, in SVG or PNG: what all of them need."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")


def render(paint: Callable[[Figure], None], *, width: float, height: float, format: str) -> bytes:
    """The figure of this size in inches that `paint` draws on, in one of `FORMATS`. Equal drawings give equal bytes.

    Raises InputError when matplotlib (the extra `plot`) is missing.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "figures need matplotlib", code="missing-package", hint="pip install 'debubble[plot]'"
        ) from None
    with rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "debubble"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=format, dpi=200, metadata={"Date": None} if format == "svg" else None)
    return buffer.getvalue()
