"""The front: the plans that no other one beats in both time and memory, and what can be said of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .candidates import Candidate, Space
from .compiler.plan import Plan
from .summary import amount, percent, table, units

NEAR = 0.01
"""Without a cap, the plan of least memory among those this close to the fastest is recommended."""

_NOTE = """proof   optimal: no schedule of this placement and cap is faster
gain    at most so much faster can any candidate be that holds no more"""


@dataclass(frozen=True)
class Point:
    """A verified plan: its time (the objective), and the memory of the device that holds most.

    `floor` is a lower bound on the time of every candidate, on whatever placement, that holds no more than the plan.
    """

    candidate: Candidate
    plan: Plan
    floor: float
    path: str | None = None
    """Where the plan is saved."""

    @property
    def value(self) -> float:
        return self.plan.value

    @property
    def memory(self) -> float:
        return max(self.plan.timeline.peak_memory)

    @property
    def proved(self) -> bool:
        """True when no schedule of its placement and cap is faster."""
        return self.plan.gap == 0

    @property
    def excess(self) -> float:
        """(time - floor) / floor: 0 when no candidate can be faster in this memory."""
        return max(0.0, self.value / self.floor - 1) if self.floor > 0 and self.value > self.floor * (1 + 1e-9) else 0.0

    def cells(self) -> list[str]:
        """A row of the front's table."""
        problem = self.plan.problem
        cells = [f"{self.memory:g}", f"{self.value:g}", str(problem.placement), str(self.candidate.chunks)]
        cells += [str(problem.microbatches), str(problem.recompute), "optimal" if self.proved else "-"]
        return [*cells, percent(1 - 1 / (1 + self.excess))]

    def as_json(self) -> dict[str, Any]:
        problem = self.plan.problem
        keys = ("status", "proof", "method", "value", "makespan", "span", "lower_bound", "gap", "bubble_ratio")
        return {
            "placement": str(problem.placement),
            "chunks": self.candidate.chunks,
            "microbatches": problem.microbatches,
            "recompute": problem.recompute,
            "memory_cap": list(problem.caps),
            "memory": self.memory,
            "peak_memory": self.plan.timeline.peak_memory,
            "floor": self.floor,
            "excess": self.excess,
            "plan": self.path,
        } | {key: value for key, value in self.plan.as_json().items() if key in keys}


@dataclass(frozen=True)
class Front:
    """What tuning found: `points` from the least memory to the least time, `others` that these beat."""

    space: Space
    points: tuple[Point, ...]
    others: tuple[Point, ...]
    infeasible: int
    """Candidates whose caps no schedule fits."""
    dropped: int
    """Candidates that were not searched, because their bound says that they can be no better."""
    seconds: float
    interrupted: bool

    @property
    def recommended(self) -> Point | None:
        """The fastest within the cap, or, without one, the least memory at about the time of the fastest."""
        if not self.points:
            return None
        fastest = self.points[-1]
        if self.space.limited:
            return fastest
        return next(point for point in self.points if point.value <= fastest.value * (1 + NEAR))

    def recommendation(self) -> str:
        """One sentence: which plan, and why."""
        point = self.recommended
        if point is None:
            return f"No plan was found {'before the interrupt' if self.interrupted else 'in this time'}."
        fastest, first = self.points[-1], self.space.yardstick
        profile = first.problem.profile
        time, memory = amount(point.value, profile.time_unit), amount(point.memory, profile.memory_unit)
        if self.space.limited:
            why = "it is the fastest plan found within the memory cap"
        elif point is fastest:
            why = f"it is the fastest plan found, and no other within {NEAR:.0%} of its time holds less"
        else:
            why = (
                f"it holds the least of all plans within {NEAR:.0%} of the fastest "
                f"({amount(fastest.value, profile.time_unit)}, which holds "
                f"{amount(fastest.memory, profile.memory_unit)})"
            )
        if point.excess == 0:
            proof = "no candidate can be faster in this memory"
        else:
            proof = f"no candidate can be faster by more than {percent(1 - point.floor / point.value)} in this memory"
        theirs = amount(first.value, profile.time_unit), amount(max(first.peak_memory), profile.memory_unit)
        against = f"against 1F1B's {theirs[0]} and {theirs[1]}"
        return f"Take {point.candidate}, with {time} and {memory} {against}: {why}; {proof}."

    def __str__(self) -> str:
        """The plans as a table, what its columns mean, what was done, and what to take."""
        problem = self.space.yardstick.problem
        header = ["memory", problem.objective, "placement", "chunks", "m", "recompute", "proof", "gain"]
        parts = []
        if self.points:
            parts.append(table(header, [point.cells() for point in self.points]))
            parts.append(f"the most memory on any device, and the time{units(problem)}\n{_NOTE}\n{self.account()}")
        else:
            parts.append(self.account())
        notes = "".join(f"\nnote: {warning}" for warning in self.warnings())
        return "\n\n".join([*parts, textwrap.fill(self.recommendation(), 80, break_on_hyphens=False) + notes])

    def account(self) -> str:
        """What was done, in one line."""
        plans = len(self.points) + len(self.others)
        words = [f"{len(self.space.candidates)} candidates", f"{plans} searched", f"{self.dropped} dropped by a bound"]
        words += [f"{self.infeasible} that no schedule fits", f"{self.seconds:.0f} s"]
        return ", ".join(words) + (", interrupted" if self.interrupted else "")

    def warnings(self) -> list[str]:
        """What the numbers include, and what they do not."""
        profile = self.space.yardstick.problem.profile
        found = list(self.space.notes)
        if any(point.plan.problem.placement.bidirectional for point in self.points) and not any(
            stage.static_memory for stage in profile.stages
        ):
            found.append("bidirectional placements hold all weights twice, but static_memory is not known")
        return found

    def draw(self, format: str) -> bytes:
        """The front as a figure, "svg" or "png". Raises InputError when matplotlib is missing."""
        from .compiler.pictures import front

        def dot(point: Point) -> front.Dot:
            problem = point.plan.problem
            return front.Dot(point.memory, point.value, f"{problem.placement} {problem.microbatches}", point.proved)

        first = self.space.yardstick
        profile = first.problem.profile
        units = {unit: f" ({unit})" if unit else "" for unit in (profile.time_unit, profile.memory_unit)}
        return front.draw(
            [dot(point) for point in self.points],
            [dot(point) for point in self.others],
            [(point.memory, point.floor) for point in self.points],
            front.Dot(max(first.peak_memory), first.value, "1F1B"),
            time=first.problem.objective + units[profile.time_unit],
            memory=f"memory of the fullest device{units[profile.memory_unit]}",
            format=format,
        )

    def as_json(self) -> dict[str, Any]:
        first = self.space.yardstick
        best = self.recommended
        return {
            "objective": first.problem.objective,
            "front": [point.as_json() for point in self.points],
            "others": [point.as_json() for point in self.others],
            "recommended": None if best is None else self.points.index(best),
            "recommendation": self.recommendation(),
            "yardstick": {"schedule": "1f1b", "value": first.value, "memory": max(first.peak_memory)},
            "candidates": len(self.space.candidates),
            "searched": len(self.points) + len(self.others),
            "infeasible": self.infeasible,
            "dropped": self.dropped,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
        }


def floor(memory: float, bounds: Mapping[Candidate, float]) -> float:
    """A lower bound on the time of every candidate that holds at most `memory` on every device.

    A bound under one cap holds under every smaller one. So each family (a placement, a number of micro-batches, a
    recomputation) is bounded by the best of its bounds under caps of at least that memory, and all by the least family.
    """
    families: dict[object, float] = {}
    for candidate, bound in bounds.items():
        own = families.setdefault(candidate.family, 0.0)
        if candidate.cap >= memory * (1 - 1e-9):
            families[candidate.family] = max(own, bound)
    return min(families.values(), default=0.0)


def pareto(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Those that no other beats in time and memory, by ascending memory, and the rest."""
    front: list[Point] = []
    rest: list[Point] = []
    least = math.inf
    for point in sorted(points, key=lambda point: (point.memory, point.value)):
        if point.value < least * (1 - 1e-9):
            front.append(point)
            least = point.value
        else:
            rest.append(point)
    return front, rest
