"""Progress: whether all streams together come to their end, whatever the times turn out to be.

An instruction starts when its device reaches it, the members of a group together. Some then wait until another one has
started: a send for its receive (rendezvous), a wait for the send of what is received, a reduction for its other half.
"""

from __future__ import annotations

import heapq

import numpy as np

from .diagnostic import Report
from .instruction import Receive, Reduce, Send, Wait
from .table import Rows
from .traffic import NEVER, First, Traffic

_MOST_NAMES = 12


def check_progress(traffic: Traffic, report: Report, transfers: str) -> None:
    """Report the circle in which streams wait for each other. Both sides of every channel must agree."""
    stuck = _run(traffic, *_needs(traffic, transfers == "rendezvous"))
    if not stuck:
        return
    cycle = _cycle({device: int(traffic.device[other]) for device, (_, other) in stuck.items()})

    def stop(device: int) -> str:
        row, other = stuck[device]
        then = {Send: "sends it", Receive: "posts its receive", Reduce: "joins"}[type(traffic.instruction(other))]
        return f"{traffic.spelled(row)} until device {traffic.device[other]} {then}"

    links = [f"device {device} is stuck at {stop(device)}" for device in cycle[:_MOST_NAMES]]
    if len(cycle) > len(links):
        links.append(f"and so on over {len(cycle)} devices, back to device {cycle[0]}")
    around = sorted(stuck.keys() - set(cycle))
    others = [f"device {device} at {traffic.spelled(stuck[device][0])}" for device in around[:_MOST_NAMES]]
    others += [f"{len(around) - len(others)} more"] if len(around) > len(others) else []
    message = f"with {transfers} transfers the streams stall: {'; '.join(links)}"
    first = stuck[cycle[0]][0]
    report.error(
        "stall",
        message + (f" (so also {', '.join(others)})" if others else ""),
        device=cycle[0],
        operation=traffic.spelled(first),
        index=int(traffic.index[first]),
    )


def _needs(traffic: Traffic, rendezvous: bool) -> tuple[Rows, Rows]:
    """The rows that may have to wait, in order, and the row that has to start before each goes on."""
    sends, receives, _, _ = traffic.channels  # the k-th of the one belongs to the k-th of the other
    waits, reduces = traffic.rows(Wait), traffic.rows(Reduce)
    sender = First((traffic.device[receives], traffic.values[receives]), sends)
    awaited = sender.of((traffic.device[waits], traffic.values[waits]))
    copy = First((traffic.device[reduces], traffic.stage[reduces]), reduces)
    joined = copy.of((traffic.peer[reduces], traffic.stage[reduces]))
    received = awaited != NEVER  # a wait for a send of one's own adds nothing to what the send waited for
    rows = np.concatenate((sends[:0] if not rendezvous else sends, waits[received], reduces))
    others = np.concatenate((receives[:0] if not rendezvous else receives, awaited[received], joined))
    order = np.argsort(rows)
    return rows[order], others[order]


def _run(traffic: Traffic, needing: Rows, needed: Rows) -> dict[int, tuple[int, int]]:
    """Run all streams until each ends or all that are left wait: the row at which each is stuck, and what it needs."""
    devices = traffic.problem.devices
    bounds = np.searchsorted(traffic.device[needing], np.arange(devices + 1)).tolist()
    rows, others, peers = needing.tolist(), needed.tolist(), traffic.device[needed].tolist()
    started = traffic.ends_of_groups(needing).tolist()
    position, end = bounds[:-1], bounds[1:]
    reached = [-1] * devices  # the last row that each device has started
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(devices)]  # by device, which of its rows others wait for
    runnable = list(range(devices))
    while runnable:
        device = runnable.pop()
        at = position[device]
        while at < end[device] and others[at] <= reached[peers[at]]:
            at += 1
        position[device] = at
        reached[device] = started[at] if at < end[device] else NEVER
        if at < end[device]:
            heapq.heappush(waiting[peers[at]], (others[at], device))
        queue = waiting[device]
        while queue and queue[0][0] <= reached[device]:
            runnable.append(heapq.heappop(queue)[1])
    return {device: (rows[at], others[at]) for device, at in enumerate(position) if at < end[device]}


def _cycle(successor: dict[int, int]) -> list[int]:
    """The shortest cycle that following `successor` ends in, from its smallest device."""
    cycles = []
    done: set[int] = set()
    for start in sorted(successor):
        path: dict[int, int] = {}
        node = start
        while node not in path and node not in done:
            path[node] = len(path)
            node = successor[node]
        if node in path:
            cycles.append(list(path)[path[node] :])
        done.update(path)
    best = min(cycles, key=lambda cycle: (len(cycle), min(cycle)))
    first = best.index(min(best))
    return best[first:] + best[:first]
