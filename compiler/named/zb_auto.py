"""ZB-1p and ZB-2p (Qi et al. 2023, section 4): the automatic zero-bubble schedules under 1 and 2 times 1F1B's memory.

The greedy behind them, on the measured costs: as many forwards as fit before the first backward returns, then a forward
and a backward on every device in turn, with weight gradients in the waits.
"""

from __future__ import annotations

from itertools import product

from ..problem import Problem
from ..schedule import Schedule
from .common import refuse_fused, single_stages
from .filling import Filling


def zb_1p(problem: Problem) -> Schedule:
    """At most the memory of p micro-batches on every device. Needs one stage per device."""
    return _automatic(problem, "zb-1p", 1)


def zb_2p(problem: Problem) -> Schedule:
    """At most the memory of 2p micro-batches on every device. Needs one stage per device."""
    return _automatic(problem, "zb-2p", 2)


def _automatic(problem: Problem, name: str, times: int) -> Schedule:
    refuse_fused(problem, name)
    stages = single_stages(problem, name)
    owners = problem.placement.down
    limit = [times * problem.stages * problem.least["F"][stages[device]].change for device in range(problem.devices)]
    tries = [_simulated(problem, name, limit, owners, *options) for options in product((True, False), repeat=3)]
    return Schedule.of(min(tries, key=lambda one: one.worst).orders, name)


def _simulated(
    problem: Problem, name: str, limit: list[float], owners: tuple[int, ...], early: bool, patient: bool, eager: bool
) -> Filling:
    """One greedy simulation.

    `early`: the warm-up ends before the first gradient returns, not after. `patient`: a forward may be left out where
    the next stage is not ready for it. `eager`: weight gradients go first also where a device may wait.
    """
    state = Filling(problem, name, limit)
    _warm_up(state, owners, early)
    first = owners[0]
    for _ in range(1, problem.microbatches):
        for stage in _entering(state, owners, patient):
            state.make_room(owners[stage], problem.least["F"][stage].change)
            state.fill(state.next("F", stage), within=eager, beyond=True)
        for stage in reversed(range(problem.stages)):
            state.make_room(owners[stage], problem.least["B"][stage].change)
            if stage == 0 and state.forwards[0] == problem.microbatches:
                while state.weights[first]:
                    state.weight(first)
            state.fill(state.next("B", stage), within=eager, beyond=True)
    state.finish()
    return state


def _warm_up(state: Filling, owners: tuple[int, ...], early: bool) -> None:
    """The first forward of every stage, then what fits until the first gradient is back, then the first backward.

    No stage takes as many forwards as the one before it.
    """
    problem, stages = state.problem, state.problem.stages
    for stage in range(stages):
        state.put(state.next("F", stage))
    extra = [0] * stages
    returned = state.clock[owners[-1]] + problem.least["B"][-1].duration
    for stage in reversed(range(stages - 1)):
        device = owners[stage]
        duration, _, memory = problem.least["F"][stage]
        clock, held = state.clock[device], state.held[device]
        back = returned + problem.transfer(owners[stage + 1], device, stage)
        while 1 + extra[stage] < problem.microbatches and held + memory <= state.limit[device] * (1 + 1e-9):
            if (clock + duration > back) if early else (clock >= back):
                break
            clock, held = clock + duration, held + memory
            extra[stage] += 1
        returned = max(clock, back) + problem.least["B"][stage].duration
    for stage in range(1, stages):
        extra[stage] = max(0, min(extra[stage], extra[stage - 1] - 1))
    for stage in range(stages):
        for _ in range(extra[stage]):
            state.put(state.next("F", stage))
    for stage in reversed(range(stages)):
        state.put(state.next("B", stage))


def _entering(state: Filling, owners: tuple[int, ...], patient: bool) -> list[int]:
    """The stages that take a forward in this round: a stage only where the next one does too, or is done."""
    stages, m = state.problem.stages, state.m
    wanted = [
        state.forwards[stage] < m and not (patient and stage + 1 < stages and _may_skip(state, owners, stage))
        for stage in range(stages)
    ]
    for stage in reversed(range(stages - 1)):
        wanted[stage] = wanted[stage] and wanted[stage + 1]
    return [stage for stage in range(stages) if wanted[stage]]


def _may_skip(state: Filling, owners: tuple[int, ...], stage: int) -> bool:
    """True where the next stage has two micro-batches in stock and will still be busy with one of them."""
    device, after, problem = owners[stage], owners[stage + 1], state.problem
    if state.forwards[stage] < state.forwards[stage + 1] + 2:
        return False
    least = problem.least
    busy = state.clock[after] + least["F"][stage + 1].duration + least["B"][stage + 1].duration
    busy += problem.transfer(device, after, stage)
    if state.clock[device] >= busy:
        return True
    room = state.held[device] + least["F"][stage].change - state.limit[device]
    time = state.clock[device] + least["F"][stage].duration
    for weight in state.weights[device]:
        if room <= 0:
            break
        room += problem.cost(weight).change
        time += problem.duration(weight)
    if time <= busy:
        return False
    return busy - state.clock[device] <= state.worst - state.waited[device]
