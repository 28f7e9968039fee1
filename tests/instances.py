"""Small problems with their optimal values, proved by an independent exact solver for split backwards.

Costs are F, B and W per stage (a tuple where stages differ), memory is the change at F, B and W.
"""

from __future__ import annotations

from dataclasses import dataclass

from debubble.compiler import placement
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage

Costs = tuple[float | tuple[float, ...], ...]


@dataclass(frozen=True)
class Instance:
    name: str
    placement: str
    devices: int
    microbatches: int
    costs: Costs
    comm: float
    memory: tuple[float, float, float]
    memory_cap: float | tuple[float, ...]
    objective: str
    optimum: float

    def __str__(self) -> str:
        return self.name

    def problem(self) -> Problem:
        """The instance as a problem; stages = 2 x devices on loop and v."""
        place = placement.named(self.placement, devices=self.devices)
        columns = [cost if isinstance(cost, tuple) else (cost,) * place.stages for cost in self.costs]
        stages = tuple(
            Stage(forward=f, backward_input=b, backward_weight=w, memory=Memory(*self.memory))
            for f, b, w in zip(*columns, strict=True)
        )
        profile = Profile(stages=stages, comm=self.comm)
        return Problem(profile, place, self.microbatches, self.memory_cap, self.objective, "split")


INSTANCES = [
    Instance("linear-4x8-cap8-makespan", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 8, "makespan", 283),
    Instance("linear-4x8-cap8-span", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 8, "span", 283),
    Instance("linear-4x8-cap16-makespan", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 16, "makespan", 265),
    Instance("linear-4x8-cap16-span", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 16, "span", 245),
    Instance("linear-4x12-cap8-makespan", "linear", 4, 12, (10, 11, 8), 1, (2, -1, -1), 8, "makespan", 399),
    Instance("linear-4x12-cap16-makespan", "linear", 4, 12, (10, 11, 8), 1, (2, -1, -1), 16, "makespan", 381),
    Instance("linear-4x16-cap8-makespan", "linear", 4, 16, (10, 11, 8), 1, (2, -1, -1), 8, "makespan", 515),
    Instance("linear-8x16-cap16-makespan", "linear", 8, 16, (10, 11, 8), 1, (2, -1, -1), 16, "makespan", 583),
    Instance("linear-8x16-cap32-span", "linear", 8, 16, (10, 11, 8), 1, (2, -1, -1), 32, "span", 505),
    Instance("linear-8x16-cap32-makespan", "linear", 8, 16, (10, 11, 8), 1, (2, -1, -1), 32, "makespan", 541),
    Instance("linear-6x12-cap12-makespan", "linear", 6, 12, (10, 11, 8), 1, (2, -1, -1), 12, "makespan", 433),
    Instance("linear-4x8-cap4-span", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 4, "span", 433),
    Instance("linear-4x8-cap6-span", "linear", 4, 8, (10, 11, 8), 1, (2, -1, -1), 6, "span", 329),
    Instance("unit-4x8", "linear", 4, 8, (10, 10, 10), 0, (2, -1, -1), 8, "makespan", 270),
    Instance("unit-held-to-W-cap2", "linear", 4, 8, (1, 1, 1), 0, (1, 0, -1), 2, "makespan", 41),
    Instance("unit-held-to-W-cap3", "linear", 4, 8, (1, 1, 1), 0, (1, 0, -1), 3, "makespan", 31),
    Instance("unit-held-to-W-cap4", "linear", 4, 8, (1, 1, 1), 0, (1, 0, -1), 4, "makespan", 27),
    Instance("v-unit-cap3", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 3, "makespan", 86),
    Instance("v-unit-cap4", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 4, "makespan", 59),
    Instance("v-unit-cap5", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 5, "makespan", 56),
    Instance("v-unit-cap6", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 6, "makespan", 53),
    Instance("v-unit-cap7", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 7, "makespan", 52),
    Instance("v-unit-cap8", "v", 4, 8, (1, 1, 1), 0, (1, 0, -1), 8, "makespan", 51),
    Instance("bidirectional-unit-held-to-B-cap2", "bidirectional", 4, 8, (1, 1, 1), 0, (1, -1, 0), 2, "makespan", 27),
    Instance("bidirectional-unit-held-to-B-cap3", "bidirectional", 4, 8, (1, 1, 1), 0, (1, -1, 0), 3, "makespan", 26),
    Instance("bidirectional-unit-held-to-B-cap4", "bidirectional", 4, 8, (1, 1, 1), 0, (1, -1, 0), 4, "makespan", 25),
    Instance("bidirectional-unit-held-to-W-cap2", "bidirectional", 4, 8, (1, 1, 1), 0, (1, 0, -1), 2, "makespan", 32),
    Instance("bidirectional-unit-held-to-W-cap3", "bidirectional", 4, 8, (1, 1, 1), 0, (1, 0, -1), 3, "makespan", 27),
    Instance("bidirectional-unit-held-to-W-cap4", "bidirectional", 4, 8, (1, 1, 1), 0, (1, 0, -1), 4, "makespan", 25),
    Instance(
        "uneven-stages",
        "linear",
        4,
        8,
        ((14, 10, 10, 16), (15, 11, 11, 18), (9, 8, 8, 12)),
        1,
        (2, -1, -1),
        8,
        "makespan",
        405,
    ),
    Instance(
        "uneven-stages-and-caps",
        "linear",
        4,
        8,
        ((14, 10, 10, 16), (15, 11, 11, 18), (9, 8, 8, 12)),
        2,
        (2, -1, -1),
        (6, 8, 8, 8),
        "makespan",
        417,
    ),
    Instance(
        "uneven-middle",
        "linear",
        4,
        8,
        ((2, 3, 2, 2), (3, 4, 3, 3), (2, 2, 2, 2)),
        0,
        (201, -127, -74),
        804,
        "makespan",
        75,
    ),
    Instance("memory-rises-at-B", "linear", 4, 8, (10, 11, 8), 1, (2, 1, -3), 12, "makespan", 277),
    Instance("fewer-microbatches-than-devices", "linear", 5, 3, (10, 11, 8), 1, (2, -1, -1), 10, "makespan", 163),
    Instance("two-devices", "linear", 2, 5, (13, 17, 6), 3, (3, -2, -1), 6, "makespan", 216),
    Instance("v-3x4", "v", 3, 4, (5, 6, 4), 1, (2, -1, -1), 6, "makespan", 209),
    Instance("v-4x6", "v", 4, 6, (5, 5, 5), 0, (2, -1, -1), 8, "makespan", 235),
    Instance("loop-3x4", "loop", 3, 4, (5, 6, 4), 1, (2, -1, -1), 12, "makespan", 140),
    Instance("bidirectional-4x8", "bidirectional", 4, 8, (10, 11, 8), 0, (2, -1, -1), 10, "makespan", 242),
    Instance("toy-cap10", "linear", 4, 12, (5, 6, 4), 0, (2, -1, -1), 10, "span", 193),
    Instance("toy-cap14-span", "linear", 4, 12, (5, 6, 4), 0, (2, -1, -1), 14, "span", 183),
    Instance("toy-cap14-makespan", "linear", 4, 12, (5, 6, 4), 0, (2, -1, -1), 14, "makespan", 195),
    Instance("linear-8x16-cap8-makespan", "linear", 8, 16, (10, 11, 8), 1, (2, -1, -1), 8, "makespan", 875),
    Instance("linear-8x16-cap12-makespan", "linear", 8, 16, (10, 11, 8), 1, (2, -1, -1), 12, "makespan", 672),
]
