"""ZB-V (Qi et al. 2023, section 6): two chunks per device in a V, zero bubble at the memory of 1F1B.

Waits are filled with W as soon as one fits, and where a device has already waited less than the worst one, it waits.
Both fillings beyond that are tried with and without, and again with the waits of the last try as what is allowed; the
shortest span is kept.
"""

from __future__ import annotations

from ..errors import InputError
from ..placement import v
from ..problem import Problem
from ..schedule import Schedule
from .common import refuse_fused
from .filling import Filling


def zb_v(problem: Problem) -> Schedule:
    """ZB-V under its own limit of what p micro-batches hold. Needs a v placement of two chunks."""
    refuse_fused(problem, "zb-v")
    if problem.placement.down != v(problem.devices).down or problem.placement.bidirectional:
        raise InputError(f"zb-v needs a v placement of two chunks, not {problem.placement}", hint="use --placement v")
    tries = []
    for fill_backwards in (True, False):
        for fill_forwards in (True, False):
            best = _fold(problem, fill_forwards, fill_backwards, None)
            while True:
                allowed = [best.worst - waited for waited in best.waited]
                again = _fold(problem, fill_forwards, fill_backwards, allowed)
                if again.worst >= best.worst:
                    break
                best = again
            tries.append(best)
    return Schedule.of(min(tries, key=lambda one: one.worst).orders, "zb-v")


def _fold(problem: Problem, fill_forwards: bool, fill_backwards: bool, allowed: list[float] | None) -> Filling:
    """One greedy simulation. A micro-batch passes each device in two legs either way."""
    p, forwards = problem.devices, problem.least["F"]
    state = Filling(
        problem, "zb-v", [p * (forwards[r].change + forwards[2 * p - 1 - r].change) for r in range(p)], allowed
    )
    _warm_up(state)
    for _ in range(2 * problem.microbatches):
        _backward_round(state, fill_backwards)
        _forward_round(state, fill_forwards)
    state.finish()
    return state


def _turn(state: Filling, device: int) -> int:
    """The stage of a device that is passed on the way up; the one on the way down is numbered as the device."""
    return 2 * state.p - 1 - device


def _forward(state: Filling, stage: int) -> None:
    if state.forwards[stage] < state.m:
        state.put(state.next("F", stage))


def _warm_up(state: Filling) -> None:
    """Forwards until every device has an equal lead, the devices below device 0 one step behind the one above."""
    p, m, forwards = state.p, state.m, state.forwards
    for device in range(p):
        _forward(state, device)
    _forward(state, _turn(state, p - 1))
    for device in reversed(range(p - 1)):
        arrival = state.arrival(state.next("F", _turn(state, device))) or 0.0
        duration, _, memory = state.problem.least["F"][device]
        while (
            state.held[device] + memory * (2 + device * 2) <= state.limit[device]
            and state.clock[device] + duration <= arrival
            and forwards[device] < m
        ):
            for above in range(device + 1):
                _forward(state, above)
        _forward(state, _turn(state, device))
    down = True
    for device in range(1, p):
        above, far = device - 1, _turn(state, device)
        while (
            forwards[device] + forwards[far] < forwards[above] + forwards[far + 1]
            or forwards[far] <= forwards[far + 1] < m
        ):
            for below in reversed(range(device, p)):
                _forward(state, below if down else _turn(state, below))
            down = not down


def _backward_round(state: Filling, eager: bool) -> None:
    """A backward on every device: of the stage it began with where one is due and its gradient there."""
    backwards = state.problem.least["B"]
    for device in range(state.p):
        state.make_room(device, max(backwards[device].change, backwards[_turn(state, device)].change))
    returning = [device for device in range(state.p) if _returns(state, device)]
    for device in reversed(returning):
        state.fill(state.next("B", device), within=False, beyond=True)
    for device in range(state.p):
        if device not in returning:
            state.fill(state.next("B", _turn(state, device)), within=False, beyond=eager)


def _returns(state: Filling, device: int) -> bool:
    """True when a micro-batch that has turned on a device is due to return through it."""
    turned, returned = state.backwards[_turn(state, device)], state.backwards[device]
    if returned >= turned:
        return False
    return device == state.p - 1 or turned >= state.m or state.arrival(state.next("B", device)) is not None


def _forward_round(state: Filling, eager: bool) -> None:
    """A forward on every device that has one ready: on the way up first."""
    for device in range(state.p):
        far = _turn(state, device)
        entered, turned = state.forwards[device], state.forwards[far]
        if turned >= state.m:
            continue
        if turned < entered and (device == state.p - 1 or state.arrival(state.next("F", far)) is not None):
            stage = far
        elif turned >= entered or (entered < state.m and state.arrival(state.next("F", device)) is not None):
            stage = device
        else:
            continue
        entering = state.problem.least["F"]
        state.make_room(device, max(entering[device].change, entering[far].change))
        state.fill(state.next("F", stage), within=False, beyond=eager)
