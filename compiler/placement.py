"""Placements: which device owns each stage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from .errors import InputError
from .wording import counted

NAMES = ("linear", "loop", "v", "bidirectional")


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`down[s]` is the device of stage s for micro-batches that travel down.

    `up[s]`, in a bidirectional placement, is its device for those that travel up.

    `kind` is one of `NAMES`, or "explicit" for a list of the user's.
    """

    kind: str
    devices: int
    down: tuple[int, ...]
    up: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.devices < 1 or not self.down:
            raise InputError("a placement needs at least one device and one stage")
        if self.up is not None and len(self.up) != len(self.down):
            raise InputError(f"placement: {len(self.down)} stages go down, but {len(self.up)} up")
        for owners in filter(None, (self.down, self.up)):
            for stage, device in enumerate(owners):
                if not 0 <= device < self.devices:
                    raise InputError(f"placement: stage {stage} is on device {device}, of {self.devices} devices")
            held = set(owners)
            idle = next((device for device in range(self.devices) if device not in held), None)
            if idle is not None:
                raise InputError(
                    f"placement: device {idle} owns no stage",
                    hint="number the devices 0, 1, 2, ... without a gap",
                )

    @property
    def stages(self) -> int:
        return len(self.down)

    @property
    def bidirectional(self) -> bool:
        return self.up is not None

    def goes_up(self, microbatch: int, microbatches: int) -> bool:
        """True for the second half of the micro-batches in a bidirectional placement."""
        return self.up is not None and microbatch >= (microbatches + 1) // 2

    def owners(self, microbatch: int, microbatches: int) -> tuple[int, ...]:
        """The device of every stage for this micro-batch."""
        return self.up if self.up is not None and self.goes_up(microbatch, microbatches) else self.down

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """For each device, the stages it holds weights of (both directions), ascending."""
        held: list[set[int]] = [set() for _ in range(self.devices)]
        for owners in filter(None, (self.down, self.up)):
            for stage, device in enumerate(owners):
                held[device].add(stage)
        return tuple(tuple(sorted(stages)) for stages in held)

    def __str__(self) -> str:
        return ",".join(map(str, self.down)) if self.kind == "explicit" else self.kind


def linear(devices: int) -> Placement:
    """Stage s on device s."""
    return Placement("linear", devices, tuple(range(devices)))


def loop(devices: int, chunks: int = 2) -> Placement:
    """Stage s on device s mod p (Megatron-LM, Narayanan et al. 2021, section 2.2)."""
    return Placement("loop", devices, tuple(range(devices)) * chunks)


def v(devices: int, chunks: int = 2) -> Placement:
    """Down the devices and back up, once per two chunks (Qi et al. 2023, section 6)."""
    down = tuple(range(devices))
    return Placement("v", devices, tuple(d for chunk in range(chunks) for d in (down[::-1] if chunk % 2 else down)))


def bidirectional(devices: int) -> Placement:
    """Half of the micro-batches on devices 0..p-1, the others on p-1..0, with two copies of every stage (Chimera)."""
    down = tuple(range(devices))
    return Placement("bidirectional", devices, down, down[::-1])


def is_list(placement: str | Sequence[int]) -> bool:
    """True for a list of devices, also when it is written as text; False for a name."""
    return not isinstance(placement, str) or "," in placement or placement.isdecimal()


def explicit(listed: str | Sequence[int]) -> Placement:
    """The device of each stage, in the order of the stages, or `0,1,1,0`; recognises the named placements.

    Raises InputError when the list is none of devices, or a device owns no stage.
    """
    try:
        owners = tuple(int(owner) for owner in (listed.split(",") if isinstance(listed, str) else listed))
    except ValueError:
        text = str(listed) if len(str(listed)) <= 40 else f"{str(listed)[:40]}..."
        raise InputError(f"placement {text!r} is not a list of device numbers", hint="write it as 0,1,1,0") from None
    if max(owners, default=0) >= len(owners):
        raise InputError(f"the placement names device {max(owners)}, but has only {counted(len(owners), 'stage')}")
    devices = max(owners, default=-1) + 1
    placement = Placement("explicit", devices, tuple(owners))
    chunks, rest = divmod(len(owners), devices)
    if rest == 0:
        for named in (linear(devices), loop(devices, chunks), v(devices, chunks)):
            if named.down == placement.down:
                return named
    return placement


def named(name: str, *, devices: int, chunks: int | None = None) -> Placement:
    """The placement called `name` (or written as a list, `0,1,1,0`) on `devices` devices.

    `chunks` is stages per device: 1 for linear and bidirectional, 2 by default for loop and v.
    Raises InputError when the name is unknown or the numbers do not fit each other.
    """
    if devices < 1:
        raise InputError(f"the number of devices must be at least 1, not {devices}")
    if chunks is not None and chunks < 1:
        raise InputError(f"the number of chunks must be at least 1, not {chunks}")
    if is_list(name):
        placement = explicit(name)
        if placement.devices != devices:
            raise InputError(f"placement {name} is for {counted(placement.devices, 'device')}, not {devices}")
        return placement
    if name in ("linear", "bidirectional"):
        if chunks not in (None, 1):
            raise InputError(f"a {name} placement has one chunk per device, not {chunks}", hint="use loop or v")
        return linear(devices) if name == "linear" else bidirectional(devices)
    if name in ("loop", "v"):
        return (loop if name == "loop" else v)(devices, 2 if chunks is None else chunks)
    raise InputError(f"unknown placement {name!r}", hint=f"one of {', '.join(NAMES)}, or a list such as 0,1,1,0")
