"""Recomputation: which micro-batches drop their activations and repeat their forward before their backward.

What is dropped and when it comes back: Chen et al. 2016. Only some of the micro-batches in flight: Korthikanti et al.
2022, appendix C, and Megatron-LM's `num_microbatches_with_partial_activation_checkpoints`: how many (K) of each window
keep their activations. Here those of the widest window are counted that do not, N = (its size) - K.
"""

from __future__ import annotations

from typing import TypeAlias

from .cost import Cost, Costs, costs
from .errors import InputError
from .placement import Placement
from .profile import Profile

Recompute: TypeAlias = str | int
"""Which micro-batches are recomputed: "none", "all", or how many of those in flight (see `choice`)."""

UNITS = {
    **{"B": 1, "bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
"""Memory units in which the input that a recomputing stage keeps can be counted, in bytes."""


def windows(placement: Placement) -> tuple[int, ...]:
    """For each stage, how many micro-batches of a direction its device has in flight at most: its warm-up and one more.

    The warm-up is that of 1F1B, p - s - 1, where devices hold one stage of a direction, else that of interleaved 1F1B
    (Narayanan et al. 2021), 2 (p - r - 1) + (v - 1) p for v stages on the r-th device that a micro-batch reaches.
    """
    p, owners = placement.devices, placement.down
    if placement.stages <= p:
        return tuple(range(placement.stages, 0, -1))
    ranks = {device: rank for rank, device in enumerate(dict.fromkeys(owners))}
    return tuple(2 * (p - ranks[device] - 1) + (owners.count(device) - 1) * p + 1 for device in owners)


def choice(recompute: Recompute, placement: Placement, microbatches: int) -> tuple[bytes, ...]:
    """For each stage, a 1 at every micro-batch that it recomputes.

    With a number N, the j-th micro-batch of a direction (from 0) is recomputed where j mod window >= K, with K = (the
    largest window) - N: stages with fewer micro-batches in flight recompute fewer of them, and hold at most K whole
    ones too. With N = 0 none is recomputed, and all where N is at least the largest window. Raises InputError for
    anything but "none", "all" and such a number.
    """
    if recompute in ("none", "all"):
        return (bytes([recompute == "all"]) * microbatches,) * placement.stages
    if not isinstance(recompute, int) or isinstance(recompute, bool) or recompute < 0:
        raise InputError(
            f"unknown recomputation {recompute!r}", hint="none, all, or how many micro-batches of those in flight"
        )
    up = microbatches // 2 if placement.bidirectional else 0
    chosen = []
    kept = max(0, max(windows(placement)) - recompute)
    for window in windows(placement):
        pattern = bytes(min(kept, window)) + bytes([1]) * (window - kept)
        line = pattern * -(-microbatches // window)
        chosen.append(line[: microbatches - up] + line[:up])
    return tuple(chosen)


def recomputed(profile: Profile) -> Costs:
    """The costs of stages that recompute.

    A backward takes a forward longer. Between F and B a stage holds its input alone (`output_bytes` of the stage before
    it, where the memory unit is one of bytes; else it counts as nothing), and what its forward took beyond that comes
    back when its B or BW starts. Raises InputError when the input of a stage takes more than its activations.
    """
    unit = UNITS.get(profile.memory_unit)
    inputs = [0.0] + [0.0 if unit is None else stage.output_bytes / unit for stage in profile.stages[:-1]]
    plain = costs(profile.stages)
    repeated: dict[str, list[Cost]] = {kind: [] for kind in plain}
    for index, (stage, kept) in enumerate(zip(profile.stages, inputs, strict=True)):
        taken = max(0.0, stage.memory.forward)
        if kept > taken:
            raise InputError(
                f"stages[{index}]: its input takes {kept:g}, more than the {taken:g} its forward holds: there is "
                "nothing to recompute",
                code="bad-memory",
            )
        back = taken - kept
        repeated["F"].append(Cost(stage.forward, kept, kept))
        repeated["W"].append(plain["W"][index])
        for kind in ("B", "BW"):
            cost = plain[kind][index]
            repeated[kind].append(Cost(cost.duration + stage.forward, back + cost.rise, back + cost.change))
    return {kind: tuple(column) for kind, column in repeated.items()}


def cheapest(kept: Costs, repeated: Costs, chosen: tuple[bytes, ...]) -> Costs:
    """Costs that no micro-batch of a stage undercuts, where some are recomputed and others are not.

    The times are those of the ones that keep their activations; the memory is that of the others: less is held between
    F and B, and as much during B and after it.
    """

    def of_stage(stage: int, whole: Cost, dropped: Cost) -> Cost:
        flags = set(chosen[stage])
        if len(flags) == 2:
            return Cost(whole.duration, dropped.rise, dropped.change)
        return dropped if flags == {1} else whole

    return {
        kind: tuple(of_stage(stage, *both) for stage, both in enumerate(zip(kept[kind], repeated[kind], strict=True)))
        for kind in kept
    }
