"""Division: the stages of a profile cut anew, with the work of each device held fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from .placement import Placement
from .profile import Memory, Profile, Stage


def divide(profile: Profile, old: Placement, new: Placement) -> Profile:
    """The profile with the stages of another placement on as many devices, the work of each device held fixed.

    A device's costs are shared equally between its new stages: with v chunks each has 1/v of the times and the
    memory. What stages send to each other stays as large as it was. A bidirectional placement keeps one share of the
    model per device, though each is held twice.
    """
    held = [(device,) for device in range(old.devices)] if old.bidirectional else old.copies
    shares = [[profile.stages[stage] for stage in stages] for stages in held]
    counts = [new.down.count(device) for device in range(new.devices)]
    pair = profile.overlapped_pair
    if isinstance(pair, tuple):
        means = [math.fsum(pair[stage] for stage in stages) / len(stages) for stages in held]
        pair = tuple(means[device] for device in new.down)
    stages = tuple(merge(shares[device], counts[device]) for device in new.down)
    return msgspec.structs.replace(profile, stages=stages, overlapped_pair=pair)


def merge(stages: Sequence[Stage], parts: int = 1) -> Stage:
    """One of `parts` equal parts of these stages together."""

    def total(numbers: list[float]) -> float:
        return math.fsum(numbers) / parts

    fused = any(stage.backward is not None for stage in stages)
    return Stage(
        forward=total([stage.forward for stage in stages]),
        backward_input=total([stage.backward_input for stage in stages]),
        backward_weight=total([stage.backward_weight for stage in stages]),
        backward=total([stage.fused for stage in stages]) if fused else None,
        memory=Memory(
            forward=total([stage.memory.forward for stage in stages]),
            backward_input=total([stage.memory.backward_input for stage in stages]),
            backward_weight=total([stage.memory.backward_weight for stage in stages]),
        ),
        static_memory=total([stage.static_memory for stage in stages]),
        output_bytes=max(stage.output_bytes for stage in stages),
    )
