"""The problem: a profile on a placement, with micro-batches, caps and an objective."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from .cost import Cost, Costs, costs
from .errors import InfeasibleError, InputError
from .numbers import check_count, check_real
from .operation import Operation, Pair, Step
from .placement import Placement
from .profile import Link, Profile
from .recomputation import Recompute, cheapest, choice, recomputed
from .wording import counted

MAX_OPERATIONS = 4_000_000
"""Problems with more F, B and W operations than this are refused."""

OBJECTIVES = ("makespan", "span")
BACKWARDS = ("any", "split", "fused")


@dataclass(frozen=True)
class Problem:
    """What a schedule is judged against.

    `memory_cap` is one number, one per device, or None for no cap; `backward` says which operations a schedule may
    use: "split" B and W, "fused" BW, "any" either, chosen by stage and micro-batch. `recompute` says which
    micro-batches repeat their forwards: "none", "all", or how many of those in flight (`recomputation`).
    Raises InputError when the parts do not fit each other.
    """

    profile: Profile
    placement: Placement
    microbatches: int
    memory_cap: float | tuple[float, ...] | None = None
    objective: str = "makespan"
    backward: str = "any"
    recompute: Recompute = "none"
    caps: tuple[float, ...] = field(init=False, repr=False)
    """The cap of every device, infinite where there is none."""
    chosen: tuple[bytes, ...] = field(init=False, repr=False)
    """For each stage, a 1 at every micro-batch that it recomputes."""
    costs: tuple[Costs, Costs] = field(init=False, repr=False, compare=False)
    """The costs for a micro-batch of factor 1 that keeps its activations, and for one that is recomputed."""

    def __post_init__(self) -> None:
        placement, profile, m = self.placement, self.profile, self.microbatches
        check_count("micro-batches", m)
        if len(profile.stages) != placement.stages:
            raise InputError(
                f"the profile has {counted(len(profile.stages), 'stage')}, but a {placement.kind} placement on "
                f"{counted(placement.devices, 'device')} has {placement.stages}",
                code="stage-count",
                hint="stages = devices x chunks (bidirectional: stages = devices)",
            )
        if 3 * placement.stages * m > MAX_OPERATIONS:
            raise InputError(
                f"{placement.stages} stages x {m} micro-batches are more than {MAX_OPERATIONS} operations",
                code="too-large",
            )
        if profile.microbatches is not None and len(profile.microbatches) != m:
            raise InputError(
                f"microbatches: the profile has {counted(len(profile.microbatches), 'factor')}, for "
                f"{counted(m, 'micro-batch')}",
                code="microbatch-count",
            )
        if isinstance(profile.comm, tuple) and len(profile.comm) != placement.devices:
            raise InputError(
                f"comm: the matrix is for {counted(len(profile.comm), 'device')}, but there are {placement.devices}",
                code="bad-key",
            )
        if self.objective not in OBJECTIVES:
            raise InputError(f"unknown objective {self.objective!r}", hint=f"one of {', '.join(OBJECTIVES)}")
        if self.backward not in BACKWARDS:
            raise InputError(f"unknown backward {self.backward!r}", hint=f"one of {', '.join(BACKWARDS)}")
        cap = self.memory_cap if self.memory_cap is not None else profile.memory_cap
        caps = (
            tuple(cap)
            if isinstance(cap, Sequence) and not isinstance(cap, str)
            else (math.inf if cap is None else cap,) * placement.devices
        )
        if len(caps) != placement.devices:
            raise InputError(
                f"memory cap: {counted(len(caps), 'cap')} for {counted(placement.devices, 'device')}",
                hint="give one, or one per device",
            )
        for device, value in enumerate(caps):
            check_real("memory cap", value)
            if math.isnan(value) or value < 0:
                raise InputError(f"memory cap: must be a number of at least 0, not {value} (device {device})")
        object.__setattr__(self, "caps", caps)
        object.__setattr__(self, "chosen", choice(self.recompute, placement, m))
        kept = costs(profile.stages)
        object.__setattr__(self, "costs", (kept, recomputed(profile) if any(map(any, self.chosen)) else kept))

    @property
    def devices(self) -> int:
        return self.placement.devices

    @property
    def stages(self) -> int:
        return self.placement.stages

    @property
    def identical_microbatches(self) -> bool:
        """True when micro-batches cost the same, so that each stage may take them in number order without loss."""
        factors = self.profile.microbatches
        same = factors is None or len(set(factors)) == 1
        return same and all(len(set(line)) == 1 for line in self.chosen)

    @cached_property
    def pair_ratios(self) -> tuple[float, ...]:
        """By stage of the forward, the duration of an overlapped pair in units of its parts'."""
        ratio = self.profile.overlapped_pair
        return ratio if isinstance(ratio, tuple) else (1.0 if ratio is None else ratio,) * self.stages

    @property
    def pairs_pay(self) -> bool:
        """True when some overlapped pair takes less time than its parts."""
        return min(self.pair_ratios) < 1

    def with_objective(self, objective: str) -> Problem:
        return replace(self, objective=objective)

    def factor(self, microbatch: int) -> float:
        """The factor of a micro-batch on every cost."""
        return 1.0 if self.profile.microbatches is None else self.profile.microbatches[microbatch]

    def recomputes(self, stage: int, microbatch: int) -> bool:
        """True when a stage drops the activations of a micro-batch and repeats its forward before its backward."""
        return bool(self.chosen[stage][microbatch])

    def device(self, operation: Operation) -> int:
        """The device that owns an operation."""
        return self.placement.owners(operation.microbatch, self.microbatches)[operation.stage]

    def cost(self, operation: Operation) -> Cost:
        """What an operation costs, with its micro-batch's factor, recomputed or not."""
        kind, stage, microbatch = operation
        cost = self.costs[self.chosen[stage][microbatch]][kind][stage]
        factors = self.profile.microbatches
        return cost if factors is None else cost.times(factors[microbatch])

    def duration(self, step: Step) -> float:
        """The time a step takes; a pair takes its ratio of F + backward, default 1."""
        if isinstance(step, Pair):
            return self.pair_ratios[step.forward.stage] * (self.duration(step.forward) + self.duration(step.backward))
        return self.cost(step).duration

    def memory(self, step: Step) -> tuple[float, float]:
        """What the held memory rises by at the start of a step, and the signed change from before it to after it.

        In a pair the forward's rise comes on top of the backward's.
        """
        if isinstance(step, Pair):
            (rise, change), (other_rise, other_change) = map(self.memory, step)
            return rise + other_rise, change + other_change
        _, rise, change = self.cost(step)
        return rise, change

    def transfer(self, source: int, target: int, stage: int, microbatch: int = 0) -> float:
        """The time to move what stage `stage` sends forward (or is sent back) from one device to another."""
        comm = self.profile.comm
        if source == target:
            return 0.0
        if isinstance(comm, tuple):
            return comm[source][target]
        if isinstance(comm, Link):
            return comm.latency + self.profile.stages[stage].output_bytes * self.factor(microbatch) / comm.bandwidth
        return comm

    @cached_property
    def least(self) -> Costs:
        """Costs by kind and stage that no micro-batch of factor 1 undercuts, neither in time nor in memory held."""
        return cheapest(*self.costs, self.chosen)

    @cached_property
    def static_memory(self) -> tuple[float, ...]:
        """Weights, gradients and optimizer state of each device; both copies in a bidirectional placement."""
        stages = self.profile.stages
        return tuple(math.fsum(stages[stage].static_memory for stage in held) for held in self.placement.copies)

    @cached_property
    def least_caps(self) -> tuple[float, ...]:
        """The smallest cap of each device under which a schedule exists.

        A device must hold at least what its stages of one micro-batch hold at their worst moment; the naive schedule,
        one micro-batch at a time with W at once, needs no more.
        """
        backward = "B" if self.backward == "split" else "BW"
        least = list(self.static_memory)
        for microbatch in self._distinct_microbatches():
            owners = list(enumerate(self.placement.owners(microbatch, self.microbatches)))
            held = [0.0] * self.devices
            peak = [0.0] * self.devices
            for stage, device in owners:
                held[device] += self.memory(Operation("F", stage, microbatch))[1]
                peak[device] = max(peak[device], held[device])
            for stage, device in reversed(owners):
                peak[device] = max(peak[device], held[device] + self.memory(Operation(backward, stage, microbatch))[0])
                held[device] -= self.memory(Operation("F", stage, microbatch))[1]
            least = [max(cap, static + top) for cap, static, top in zip(least, self.static_memory, peak, strict=True)]
        return tuple(least)

    def _distinct_microbatches(self) -> Iterator[int]:
        """Micro-batches that stand for all others in cost and direction."""
        seen = set()
        lines = list(zip(*set(self.chosen), strict=True))
        for microbatch in range(self.microbatches):
            key = (self.factor(microbatch), self.placement.goes_up(microbatch, self.microbatches), lines[microbatch])
            if key not in seen:
                seen.add(key)
                yield microbatch

    def within_cap(self, device: int, memory: float) -> bool:
        """True when this much memory fits the cap of the device, up to rounding."""
        return memory <= self.caps[device] * (1 + 1e-9) + 1e-12

    def check_feasible(self) -> None:
        """Raise InfeasibleError, with the least cap that would do, when no schedule fits the caps."""
        for device, least in enumerate(self.least_caps):
            if not self.within_cap(device, least):
                stages = self.placement.copies[device]
                owner = f"stage {stages[0]}" if len(stages) == 1 else f"stages {', '.join(map(str, stages))}"
                needs = "needs" if len(stages) == 1 else "need"
                unit = f" {self.profile.memory_unit}" if self.profile.memory_unit else ""
                raise InfeasibleError(
                    f"{owner} on device {device} {needs} at least {least:g}{unit}, "
                    f"but the cap is {self.caps[device]:g}{unit}",
                    least_cap=list(self.least_caps),
                )
