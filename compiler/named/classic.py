"""Naive model parallelism, GPipe and 1F1B."""

from __future__ import annotations

from ..operation import Operation
from ..problem import Problem
from ..schedule import Schedule
from .common import backward, forward, single_stages


def naive(problem: Problem) -> Schedule:
    """One micro-batch at a time through all stages and back. It holds the least memory of all schedules."""
    orders: list[list[Operation]] = [[] for _ in range(problem.devices)]
    for microbatch in range(problem.microbatches):
        owners = problem.placement.owners(microbatch, problem.microbatches)
        for stage, device in enumerate(owners):
            orders[device].append(forward(stage, microbatch))
        for stage, device in reversed(list(enumerate(owners))):
            orders[device].extend(backward(problem, stage, microbatch))
    return Schedule.of(orders, "naive")


def gpipe(problem: Problem) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019, section 2.3), stage by stage."""
    orders: list[list[Operation]] = [[] for _ in range(problem.devices)]
    m = problem.microbatches
    for stage in range(problem.stages):
        for microbatch in range(m):
            orders[problem.placement.owners(microbatch, m)[stage]].append(forward(stage, microbatch))
    for stage in reversed(range(problem.stages)):
        for microbatch in range(m):
            orders[problem.placement.owners(microbatch, m)[stage]].extend(backward(problem, stage, microbatch))
    return Schedule.of(orders, "gpipe")


def one_f_one_b(problem: Problem) -> Schedule:
    """p - s forwards on stage s, then a backward and a forward in turn (Narayanan et al. 2019, section 3.2).

    Needs one stage per device.
    """
    orders = []
    for stage in single_stages(problem, "1f1b"):
        warm_up = min(problem.microbatches, problem.stages - stage)
        order = [forward(stage, microbatch) for microbatch in range(warm_up)]
        for microbatch in range(problem.microbatches):
            order.extend(backward(problem, stage, microbatch))
            if microbatch + warm_up < problem.microbatches:
                order.append(forward(stage, microbatch + warm_up))
        orders.append(order)
    return Schedule.of(orders, "1f1b")
