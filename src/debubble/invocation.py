"""Invocations: the command that searches for a schedule of a problem."""

from __future__ import annotations

import math
import shlex

import msgspec

from .compiler.problem import Problem
from .compiler.profile import Profile


def invocation(problem: Problem, file: str | None) -> str | None:
    """The `debubble compile` of a problem whose costs are in a `file`, or, without one, alike for all stages.

    None where options cannot say the costs.
    """
    words = ["debubble", "compile", *(_costs(problem.profile) if file is None else [file])]
    if words[2:] == []:
        return None
    where = problem.placement
    if file is None or where.kind != "linear":
        words += ["--devices", f"{where.devices}"]
    if where.kind != "linear":
        words += ["--placement", str(where)]
    if where.kind in ("loop", "v"):
        words += ["--chunks", f"{where.stages // where.devices}"]
    words += ["--microbatches", f"{problem.microbatches}"]
    if not any(map(math.isinf, problem.caps)):
        caps = problem.caps[:1] if len(set(problem.caps)) == 1 else problem.caps
        words += ["--memory-cap", ",".join(map(_number, caps))]
    for option, value, default in (
        ("--recompute", problem.recompute, "none"),
        ("--objective", problem.objective, "makespan"),
        ("--backward", problem.backward, "any"),
    ):
        if value != default:
            words += [option, str(value)]
    return shlex.join(words)


def _costs(profile: Profile) -> list[str]:
    """The options that give the costs of equal stages; none where they do not say all that is in the profile."""
    first = profile.stages[0]
    memory = msgspec.structs.astuple(first.memory)
    times = {name: getattr(first, name) for name in ("forward", "backward_input", "backward_weight")}
    if not isinstance(profile.comm, int | float):
        return []
    told = Profile.uniform(stages=len(profile.stages), comm=profile.comm, memory=memory, **times)
    if msgspec.structs.replace(profile, memory_cap=None) != told:
        return []
    words = [word for name, time in times.items() for word in (f"--{name.replace('_', '-')}", _number(time))]
    words += ["--comm", _number(profile.comm)] if profile.comm else []
    return words + (["--memory", ",".join(map(_number, memory))] if memory != (1.0, 0.0, -1.0) else [])


def _number(value: float) -> str:
    return f"{value:.12g}"
