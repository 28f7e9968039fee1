"""The hand-drawn zero-bubble schedules ZB-H1 and ZB-H2 (Qi et al. 2023, section 2)."""

from __future__ import annotations

from collections.abc import Callable

from ..operation import Operation
from ..problem import Problem
from ..schedule import Schedule
from .common import forward, refuse_fused, single_stages


def zb_h1(problem: Problem) -> Schedule:
    """1F1B's warm-up, with W put off by s micro-batches on stage s, so that every device holds p micro-batches.

    Idle time (p - 1)(F + B - W + 4c) where W <= F, B and m >= p.
    """
    return _put_off(problem, "zb-h1", lambda s: problem.stages - s, lambda s: s)


def zb_h2(problem: Problem) -> Schedule:
    """2(p - s) - 1 forwards first and W put off by 2s on stage s, so that every device holds 2p - 1 micro-batches.

    Idle time of the span (p - 1)(F + B - 2W + 2c) where 2W <= F + B and m is large enough.
    """
    return _put_off(problem, "zb-h2", lambda s: 2 * (problem.stages - s) - 1, lambda s: 2 * s)


def _put_off(problem: Problem, name: str, warm_ups: Callable[[int], int], delays: Callable[[int], int]) -> Schedule:
    """`warm_ups` forwards, then B, W (put off by `delays` micro-batches) and F in turn, by stage."""
    refuse_fused(problem, name)
    m = problem.microbatches
    orders = []
    for stage in single_stages(problem, name):
        warm_up, delay = min(m, warm_ups(stage)), delays(stage)
        order = [forward(stage, microbatch) for microbatch in range(warm_up)]
        for microbatch in range(m):
            order.append(Operation("B", stage, microbatch))
            if microbatch >= delay:
                order.append(Operation("W", stage, microbatch - delay))
            if microbatch + warm_up < m:
                order.append(forward(stage, microbatch + warm_up))
        order.extend(Operation("W", stage, microbatch) for microbatch in range(max(0, m - delay), m))
        orders.append(order)
    return Schedule.of(orders, name)
