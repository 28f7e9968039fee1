"""Plans that the tests of pictures draw."""

from __future__ import annotations

from msgspec.structs import replace

from debubble.compiler import placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule


def plan(
    name: str = "zb-h1",
    *,
    where: str = "linear",
    devices: int = 4,
    microbatches: int = 8,
    memory_cap: float | None = 8,
    time_unit: str = "ms",
    memory_unit: str = "GiB",
    overlapped_pair: float | None = None,
    costs: tuple[float, float, float] = (10, 11, 8),
    comm: float = 1.0,
    static_memory: float = 0.0,
    objective: str = "makespan",
    method: str | None = None,
    bound: float = 232.0,
    last: float = 1.0,
) -> Plan:
    """A named schedule, by default for F 10, B 11, W 8, with transfers of 1 and two units held by a forward.

    The last stage takes `last` times as long. It is not lowered to streams: no picture shows them.
    """
    place = placement.named(where, devices=devices)
    forward, backward_input, backward_weight = costs
    stage = Stage(
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        memory=Memory(2, -1, -1),
        static_memory=static_memory,
    )
    heavy = replace(stage, forward=last * forward, backward_input=last * backward_input)
    profile = Profile(
        stages=(*(stage,) * (place.stages - 1), heavy),
        comm=comm,
        time_unit=time_unit,
        memory_unit=memory_unit,
        overlapped_pair=overlapped_pair,
    )
    problem = Problem(profile, place, microbatches, memory_cap, objective)
    schedule = named_schedule(name, problem)
    if method is not None:
        schedule = Schedule(schedule.orders, method)
    return Plan(
        problem, schedule, (), Certificate(lower_bound=bound, name="load", proof="checked", witness={"device": 0})
    )
