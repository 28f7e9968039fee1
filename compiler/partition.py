"""Partition: layers gathered into stages, none reordered or left out, so that the busiest stage has the least to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .errors import InputError
from .layers import Layers
from .placement import Placement
from .wording import counted


def split(layers: Layers, placement: Placement, caps: Sequence[float] | None = None) -> tuple[int, ...]:
    """Where the stages of a placement end, as an index into the layers, so that no stage is long.

    A stage may need its share of the cap of every device that holds it, one micro-batch and static memory counted;
    where no such split exists, the one whose fullest stage needs the least.
    Raises InputError when there are more stages than layers.
    """
    if placement.stages > len(layers.layers):
        raise InputError(
            f"{counted(placement.stages, 'stage')} cannot be made of {counted(len(layers.layers), 'layer')}: "
            "layers are not cut",
            code="stage-count",
        )
    times = [layer.forward + layer.fused for layer in layers.layers]
    needs = [layer.static_memory + layer.memory.forward for layer in layers.layers]
    shares = [math.inf] * placement.stages
    for device, held in enumerate(placement.copies):
        for stage in held:
            cap = math.inf if caps is None else caps[device]
            shares[stage] = min(shares[stage], cap / len(held))
    return partition(times, needs, shares) or partition(needs, needs, [math.inf] * placement.stages) or ()


def partition(times: Sequence[float], needs: Sequence[float], limits: Sequence[float]) -> tuple[int, ...] | None:
    """Where the parts end when items are cut, in their order, into one part per limit, none of them empty.

    The longest part is as short as can be, and then the parts are as equal as can be (least sum of squares). The
    `needs` of a part are at most its limit; None where that cannot be. Dynamic programming over the ends of the parts
    (as in PipeDream, Narayanan et al. 2019, section 3.1, without replication).
    """
    time, need = (np.concatenate(([0.0], np.cumsum(values))) for values in (times, needs))
    spans = time[None, :] - time[:, None]
    empty = np.tri(len(time), dtype=bool)
    allowed = [~empty & (need[None, :] - need[:, None] <= limit * (1 + 1e-9)) for limit in limits]
    longest, _ = _best(spans, allowed, np.maximum)
    if math.isinf(longest):
        return None
    fair = [mask & (spans <= longest * (1 + 1e-9)) for mask in allowed]
    return _best(spans**2, fair, np.add)[1]


def _best(
    costs: np.ndarray, allowed: Sequence[np.ndarray], join: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[float, tuple[int, ...]]:
    """The least cost of cutting all items, parts joined by `join`, and the ends of the parts."""
    best = np.full(len(costs), np.inf)
    best[0] = 0.0
    choices = []
    for mask in allowed:
        ways = np.where(mask, join(best[:, None], costs), np.inf)
        choices.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    ends = [len(costs) - 1]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return float(best[-1]), tuple(ends[-2::-1])
