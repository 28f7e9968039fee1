"""Random cost sets in which overlapped pairs and fused backwards save time, under the memory of a DualPipe schedule."""

from __future__ import annotations

import random
from dataclasses import replace

from debubble.compiler import placement
from debubble.compiler.named import named_schedule
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate

NAMES = {"bidirectional": "dualpipe", "v": "dualpipe-v"}
"""The hand-written schedule of each placement."""


def cost_set(place: str, seed: int, devices: int = 4, microbatches: int = 8) -> tuple[Problem, Schedule]:
    """A problem whose cap is what the hand-written schedule holds, and that schedule.

    Costs of 5 to 15, uneven by up to a fifth from stage to stage; a pair takes 0.6 to 0.95 of its parts and a fused
    backward 0.8 to 1 of B + W, by stage.
    """
    chance = random.Random(seed)
    where = placement.named(place, devices=devices)
    costs = [chance.randint(5, 15) for _ in range(3)]
    stages = []
    for _ in range(where.stages):
        f, b, w = (round(cost * chance.uniform(0.8, 1.2), 1) for cost in costs)
        fused = round((b + w) * chance.uniform(0.8, 1), 1)
        stages.append(Stage(forward=f, backward_input=b, backward_weight=w, backward=fused, memory=Memory(2, -1, -1)))
    ratios = tuple(round(chance.uniform(0.6, 0.95), 2) for _ in stages)
    profile = Profile(stages=tuple(stages), comm=chance.choice((0, 1)), overlapped_pair=ratios)
    free = Problem(profile, where, microbatches)
    named = named_schedule(NAMES[place], free)
    return replace(free, memory_cap=max(simulate(free, named).peak_memory)), named
