"""Named schedules: the hand-drawn orders of the field, as functions from a problem to a schedule."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InputError
from ..problem import Problem
from ..schedule import Schedule
from .classic import gpipe, naive, one_f_one_b
from .controllable import v_half, v_min
from .dualpipe import dualpipe, dualpipe_v
from .eager import chimera, wave
from .interleaved import interleaved, interleaved_breadth_first
from .zb_auto import zb_1p, zb_2p
from .zb_v import zb_v
from .zero_bubble import zb_h1, zb_h2

NAMED: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "interleaved-bfs": interleaved_breadth_first,
    "wave": wave,
    "chimera": chimera,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-1p": zb_1p,
    "zb-2p": zb_2p,
    "zb-v": zb_v,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
}
PLACEMENTS = {
    "interleaved": "loop",
    "interleaved-bfs": "loop",
    "wave": "v",
    "chimera": "bidirectional",
    "zb-v": "v",
    "v-half": "v",
    "v-min": "v",
    "dualpipe": "bidirectional",
    "dualpipe-v": "v",
}
"""The placement a named schedule was drawn for, where it is not linear."""


def named_schedule(name: str, problem: Problem, *, group_size: int | None = None) -> Schedule:
    """The schedule called `name` for this problem; it is not checked against the caps.

    `group_size` is the number of micro-batches that an interleaved schedule takes through a chunk before the next
    (default: the number of devices). Raises InputError when there is no such schedule, or not for this problem.
    """
    rule = NAMED.get(name)
    if rule is None:
        raise InputError(f"unknown schedule {name!r}", hint=f"one of auto, {', '.join(NAMED)}")
    if group_size is None:
        return rule(problem)
    if name != "interleaved":
        raise InputError(f"{name} has no group size", hint="only interleaved has")
    return rule(problem, group_size=group_size)
