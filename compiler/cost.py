"""Costs of operations: how long each takes, and the memory it needs and leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from .operation import KINDS
from .profile import Stage


class Cost(NamedTuple):
    """What one operation costs: memory rises by `rise` at its start, and by its end has changed by `change` in all."""

    duration: float
    rise: float
    change: float

    def times(self, factor: float) -> Cost:
        return Cost(self.duration * factor, self.rise * factor, self.change * factor)


Costs: TypeAlias = dict[str, tuple[Cost, ...]]
"""By kind, the costs of each stage."""


def costs(stages: Iterable[Stage]) -> Costs:
    """The costs of stages that keep their activations: increases count from the start, decreases from the end."""
    rows = []
    for stage in stages:
        memory = stage.memory
        changes = (
            (stage.forward, memory.forward),
            (stage.backward_input, memory.backward_input),
            (stage.backward_weight, memory.backward_weight),
            (stage.fused, memory.backward),
        )
        rows.append([Cost(duration, max(0.0, change), change) for duration, change in changes])
    return dict(zip(KINDS, zip(*rows, strict=True), strict=True))
