"""Advice: what is allowed, but costs time or is probably not meant. Everything here is a warning.

The search for a better order is the solver's; here only what can be shown by executing the schedule at hand.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence

from .diagnostic import Report
from .instruction import Compute, Instruction, Receive, Send, Stream
from .operation import Operation, parts
from .problem import Problem
from .profile import Profile
from .schedule import Schedule
from .simulation import Execution, Timeline, inputs, peak_memory

LOPSIDED = 0.8
"""A stage with more than this share of all forward time is doubtful."""
UNLIKE = 10
"""A backward this many times shorter, or a forward this many times shorter, than the other is doubtful."""
WORTH_SAYING = 0.01
"""Idle time below this share of the makespan is not mentioned."""
MAX_STEPS = 20_000
"""Longer schedules are not executed again to look for what could be better."""


def doubt(profile: Profile, report: Report) -> None:
    """Warn of measurements that look wrong: they would make every conclusion from them wrong."""
    forwards = [stage.forward for stage in profile.stages]
    if len(forwards) > 1 and max(forwards) > LOPSIDED * sum(forwards):
        lopsided = forwards.index(max(forwards))
        report.warning(
            "doubtful-profile",
            f"stage {lopsided} has {max(forwards) / sum(forwards):.0%} of all forward time: is the loading of data in "
            "it?",
        )
    for number, stage in enumerate(profile.stages):
        if stage.forward > UNLIKE * stage.fused:
            report.warning(
                "doubtful-profile",
                f"the backward of stage {number} takes {stage.fused:g}, its forward {stage.forward:g}: a backward is "
                f"hardly ever {UNLIKE} times shorter",
            )
        elif stage.fused > UNLIKE * stage.forward > 0:
            report.warning(
                "doubtful-profile",
                f"the forward of stage {number} takes {stage.forward:g}, its backward {stage.fused:g}: was the forward "
                "timed without waiting for the device?",
            )


def idle(timeline: Timeline, report: Report) -> None:
    """Warn when the same operations on the same devices, in no more memory, are done sooner in another order.

    The other order is found by executing the schedule eagerly: a device that is free takes the first operation of its
    order whose inputs are there and whose memory fits under the peak it has anyway.
    """
    if sum(map(len, timeline.schedule.orders)) > MAX_STEPS:
        return
    makespan = _eager_makespan(timeline.problem, timeline.schedule)
    if makespan is not None and makespan < timeline.makespan * (1 - WORTH_SAYING):
        report.warning(
            "avoidable-idle",
            f"the makespan of {timeline.makespan:g} can be {makespan:g} in the same memory, when every device takes "
            "the first operation of its order that is ready (debubble compile searches for the best order)",
        )


def _eager_makespan(problem: Problem, schedule: Schedule) -> float | None:
    """The makespan of the eager execution; None when it gets stuck for want of memory."""
    orders, stages = schedule.orders, problem.stages
    limits = [peak_memory(problem, device, order) + 1e-9 for device, order in enumerate(orders)]
    held = list(problem.static_memory)
    unmet: dict[tuple[int, int], int] = {}
    users: dict[Operation, list[tuple[int, int, int, int]]] = defaultdict(list)
    ready: list[list[int]] = [[] for _ in orders]
    for device, order in enumerate(orders):
        for index, step in enumerate(order):
            needs = [(need, operation) for operation in parts(step) for need in inputs(operation, stages)]
            unmet[device, index] = len(needs)
            for need, operation in needs:
                users[need].append((device, index, min(need.stage, operation.stage), need.microbatch))
            if not needs:
                ready[device].append(index)
    events: list[tuple[float, int, int, int]] = []  # (time, 0 an input arrives | 1 a step ends, device, index)
    busy = [False] * len(orders)
    done, now = 0, 0.0

    def start(device: int) -> None:
        waiting = ready[device]
        put_back = []
        while waiting:
            index = heapq.heappop(waiting)
            step = orders[device][index]
            rise, _ = problem.memory(step)
            if held[device] + rise <= limits[device]:
                held[device] += rise
                busy[device] = True
                heapq.heappush(events, (now + problem.duration(step), 1, device, index))
                break
            put_back.append(index)
        for index in put_back:
            heapq.heappush(waiting, index)

    for device in range(len(orders)):
        start(device)
    while events:
        now = events[0][0]
        touched = set()
        while events and events[0][0] == now:
            _, ended, device, index = heapq.heappop(events)
            touched.add(device)
            if not ended:
                unmet[device, index] -= 1
                if unmet[device, index] == 0:
                    heapq.heappush(ready[device], index)
                continue
            done += 1
            busy[device] = False
            step = orders[device][index]
            rise, change = problem.memory(step)
            held[device] += change - rise
            for kind, stage, microbatch in parts(step):
                made = Operation("B" if kind == "BW" else kind, stage, microbatch)
                for user, place, boundary, j in users.get(made, ()):
                    arrival = now + problem.transfer(device, user, boundary, j)
                    heapq.heappush(events, (arrival, 0, user, place))
        for device in touched:
            if not busy[device]:
                start(device)
    return now if done == sum(map(len, orders)) else None


def receives(
    problem: Problem,
    execution: Execution,
    streams: Sequence[Stream],
    report: Report,
    spell: Callable[[Instruction], str],
) -> None:
    """Warn of receives that hold up others, judged by the planned times.

    Late: a sender that waits for its receive would have had something to compute. Early: a send to the same device is
    queued behind a receive that comes later; where both directions share one communicator (NCCL), it waits for it.
    The first of each is reported, and the others are counted.
    """
    if sum(map(len, execution.starts)) > MAX_STEPS:
        return

    def warn(code: str, text: str, device: int, receive: Receive, place: int) -> None:
        if report.counts[code]:
            report.count(code, 1)
        else:
            report.warning(code, text, device=device, operation=spell(receive), index=place)

    made: dict[Operation, tuple[float, float]] = {}  # when a value exists, and when its device computes again
    for device, stream in enumerate(streams):
        starts, ends = execution.starts[device], execution.ends[device]
        steps = [instruction.step for instruction in stream if isinstance(instruction, Compute)]
        for index, step in enumerate(steps):
            following = starts[index + 1] if index + 1 < len(steps) else float("inf")
            for kind, stage, microbatch in parts(step):
                if kind != "W":
                    made[Operation("B" if kind == "BW" else kind, stage, microbatch)] = (ends[index], following)
    for device, stream in enumerate(streams):
        now, index = 0.0, 0
        latest: dict[int, tuple[float, int, Receive]] = {}  # by peer, the receive that arrives last, and its place
        for place, instruction in enumerate(stream):
            if isinstance(instruction, Compute):
                now = execution.ends[device][index]
                index += 1
            elif isinstance(instruction, Receive):
                exists, following = made[instruction.value]
                if following < now - 1e-9 * abs(now):
                    text = (
                        f"{spell(instruction)} is posted at {now:g}, but what it receives exists at {exists:g}, and "
                        f"device {instruction.peer} has to compute again at {following:g}"
                    )
                    warn("late-receive", text, device, instruction, place)
                latest[instruction.peer] = max(
                    (exists, place, instruction), latest.get(instruction.peer, (-1.0, 0, instruction))
                )
            elif isinstance(instruction, Send) and instruction.peer in latest:
                arrives, posted, receive = latest[instruction.peer]
                if arrives > made[instruction.value][0]:
                    text = (
                        f"{spell(receive)} is posted before {spell(instruction)}, which goes to the same device "
                        f"{instruction.peer} sooner: on one communicator for both ways the send waits for the receive"
                    )
                    warn("early-receive", text, device, receive, posted)
