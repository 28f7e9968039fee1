"""The jobs of debubble as Python calls: compile, verify, lower."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from .compiler.interchange import Judgement, read_schedule, verify_file
from .compiler.plan import Plan
from .compiler.profile import Profile
from .compiler.recomputation import Recompute
from .request import PlacementLike, as_profile, make_problem


def compile(
    profile: Profile | str | os.PathLike[str],
    *,
    microbatches: int,
    placement: PlacementLike | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    memory_cap: float | Sequence[float] | None = None,
    objective: str = "makespan",
    backward: str = "any",
    schedule: str = "auto",
    group_size: int | None = None,
    recompute: Recompute = "none",
    backend: str = "cbc",
    time_limit: float = 30.0,
    seed: int = 0,
    report: Callable[[float, float | None, float | None], None] | None = None,
) -> Plan:
    """Search for the schedule of a profile (or a profile file) that leaves the least idle time under a memory cap.

    `placement` is "linear" (default), "loop", "v", "bidirectional" or the device of each stage; `memory_cap` one
    number or one per device, in the profile's memory units; `objective` "makespan" or "span"; `backward` "any",
    "split" or "fused"; `schedule` the name of a hand-drawn schedule to take instead of a search; `recompute` which
    micro-batches drop their activations and repeat their forward before the backward: "none", "all", or how many of
    those that the stage with the most has in flight; of each window the first keep theirs, as many on every stage (see
    `debubble.compiler.recomputation.choice`). The search ends after `time_limit` seconds at the latest and calls
    `report` with (elapsed seconds, best value, lower bound). `backend` is "cbc", "highs" or "cp-sat".

    Raises InputError when the request cannot be understood, InfeasibleError when no schedule fits the caps,
    InvalidScheduleError when the named one does not.
    """
    from .solver.search import search

    return search(
        make_problem(
            profile,
            microbatches=microbatches,
            placement=placement,
            devices=devices,
            chunks=chunks,
            memory_cap=memory_cap,
            objective=objective,
            backward=backward,
            schedule=schedule,
            recompute=recompute,
        ),
        schedule=schedule,
        group_size=group_size,
        backend=backend,
        time_limit=time_limit,
        seed=seed,
        report=report,
    )


def verify(
    path: str | os.PathLike[str],
    *,
    dialect: str = "auto",
    profile: Profile | str | os.PathLike[str] | None = None,
    microbatches: int | None = None,
    placement: PlacementLike | None = None,
    memory_cap: float | Sequence[float] | None = None,
    recompute: Recompute | None = None,
    transfers: str = "rendezvous",
    forward_only: bool = False,
) -> Judgement:
    """Judge a plan, or a schedule that somebody wrote by hand or exported from another tool.

    `dialect` is "auto", "text", "torch", "torch-legacy", "printed" or "megatron". Without a profile every F, B and W
    takes 1, BW takes 2, and memory is 1, 0, -1; a plan is judged with what it holds. `recompute` is that of `compile`.
    With `transfers` "rendezvous" a send blocks until its receive is posted, with "buffered" it never does. Whatever is
    wrong with the file is in the judgement; InputError is raised for the profile only.
    """
    return verify_file(
        path,
        dialect=dialect,
        profile=None if profile is None else as_profile(profile),
        microbatches=microbatches,
        placement=placement,
        memory_cap=memory_cap,
        recompute=recompute,
        transfers=transfers,
        forward_only=forward_only,
    )


def lower(
    path: str | os.PathLike[str],
    *,
    dialect: str = "auto",
    profile: Profile | str | os.PathLike[str] | None = None,
    microbatches: int | None = None,
    placement: PlacementLike | None = None,
    memory_cap: float | Sequence[float] | None = None,
    recompute: Recompute | None = None,
) -> Plan:
    """Make a plan of a schedule file, as it stands: the order on every device is kept, and a lower bound tells how far
    it is from the best.

    The arguments are those of `verify`. Raises InputError when the file cannot be understood, InvalidScheduleError
    when the schedule is invalid.
    """
    from .solver.search import certified

    read = read_schedule(path, dialect=dialect, microbatches=microbatches, placement=placement)
    problem = read.problem(None if profile is None else as_profile(profile), memory_cap=memory_cap, recompute=recompute)
    return certified(problem, read.schedule)
