"""Verification of instruction streams by abstract execution: values are names, time does not exist.

A send waits until its receive is posted when `transfers` is "rendezvous", and never when it is "buffered"; a receive
is posted without waiting; the members of a group start together. Per ordered device pair the k-th receive gets what
the k-th send sends. Each check is a few array expressions; `progress.py` runs the streams against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .diagnostic import MAX_OF_A_KIND, Report
from .errors import InputError
from .instruction import Compute, Instruction, Receive, Reduce, Send, Stream, Wait
from .operation import Operation
from .problem import Problem
from .progress import check_progress
from .table import NUMBER, Rows, needs
from .traffic import NEVER, First, Traffic

TRANSFERS = ("rendezvous", "buffered")


def verify_streams(
    problem: Problem,
    streams: Sequence[Stream],
    *,
    transfers: str = "rendezvous",
    spell: Callable[[Instruction], str] = str,
) -> Report:
    """Check that the streams of all devices can run to their end and that every value arrives where it is used.

    `spell` writes an instruction the way its reader knows it. Raises InputError when there is no such `transfers`.
    """
    if transfers not in TRANSFERS:
        raise InputError(f"unknown transfers {transfers!r}", hint=f"one of {', '.join(TRANSFERS)}")
    report = Report()
    if len(streams) != problem.devices:
        report.error("device-count", f"there are {len(streams)} streams for {problem.devices} devices")
        return report
    traffic = _check_ranges(Traffic.of(problem, streams, spell), report)
    _check_channels(traffic, report)
    _check_reductions(traffic, report)
    _check_values(traffic, report)
    _check_buffers(traffic, report)
    if report.valid:
        check_progress(traffic, report, transfers)
    return report


def name_value(value: Operation) -> str:
    """A value in words: an operation's own name says what makes it, which for a gradient is a B or a BW."""
    what = "activation" if value.kind == "F" else "gradient"
    return f"the {what} of stage {value.stage}, micro-batch {value.microbatch}"


def _check_ranges(traffic: Traffic, report: Report) -> Traffic:
    """Stages, micro-batches and peers exist. Returns the instructions that make sense so far."""
    problem, valued = traffic.problem, traffic.kind >= 0
    bad_stage = valued & ((traffic.stage < 0) | (traffic.stage >= problem.stages))
    bad_microbatch = valued & ((traffic.microbatch < 0) | (traffic.microbatch >= problem.microbatches))
    bad_peer = (traffic.peer >= problem.devices) | (traffic.peer == traffic.device)
    for code, bad, message in (
        ("stage-out-of-range", bad_stage, f"the stages are 0 to {problem.stages - 1}"),
        ("microbatch-out-of-range", bad_microbatch, f"the micro-batches are 0 to {problem.microbatches - 1}"),
        ("bad-peer", bad_peer, "there is no such peer"),
    ):
        traffic.report(report, code, np.flatnonzero(bad), message)
    return traffic.without(np.flatnonzero(bad_stage | bad_microbatch | bad_peer))


def _check_channels(traffic: Traffic, report: Report) -> None:
    """On every ordered device pair, receives and sends are the same values in the same order."""
    sends, receives, sent, received = traffic.channels
    if np.array_equal(sent, received) and np.array_equal(traffic.values[sends], traffic.values[receives]):
        return
    for channel in np.union1d(sent, received):
        out = sends[slice(*np.searchsorted(sent, (channel, channel + 1)))]
        into = receives[slice(*np.searchsorted(received, (channel, channel + 1)))]
        if not np.array_equal(traffic.values[out], traffic.values[into]):
            _check_channel(traffic, out, into, report)


def _check_channel(traffic: Traffic, out: Rows, into: Rows, report: Report) -> None:
    """Say how the sends from one device to another differ from their receives."""
    values = traffic.values
    unreceived, unsent = out[~np.isin(values[out], values[into])], into[~np.isin(values[into], values[out])]

    def nobody(does: str) -> Callable[[int], str]:
        return lambda row: f"device {traffic.peer[row]} never {does} {name_value(traffic.value(row))}"

    traffic.report(report, "unmatched-send", unreceived, nobody("receives"))
    traffic.report(report, "unmatched-receive", unsent, nobody("sends"))
    if len(unreceived) or len(unsent):
        return
    length = min(len(out), len(into))
    differing = np.flatnonzero(values[out[:length]] != values[into[:length]])
    if len(differing):
        number = int(differing[0])
        send, receive = out[number], into[number]
        message = (
            f"{traffic.spelled(receive)} takes what {traffic.spelled(send)} of device {traffic.device[send]} sends: "
            f"transfers between two devices are matched by order alone, and message {number} on this way is sent as "
            f"{name_value(traffic.value(send))}"
        )
        place = {"device": int(traffic.device[receive]), "index": int(traffic.index[receive])}
        report.error("channel-order", message, operation=traffic.spelled(receive), **place)
    else:
        source, target = traffic.device[out[0]], traffic.device[into[0]]
        message = f"device {source} sends {len(out)} messages to device {target}, which receives {len(into)}"
        report.error("channel-count", message, device=int(source))


def _check_reductions(traffic: Traffic, report: Report) -> None:
    """Where a stage has two copies, both reduce its gradient once, in one order, after its last weight gradient."""
    placement = traffic.problem.placement
    reduces = traffic.rows(Reduce)
    found = [(int(traffic.device[row]), traffic.instruction(row)) for row in reduces]
    expected = set()
    if placement.up is not None:
        for stage, (down, up) in enumerate(zip(placement.down, placement.up, strict=True)):
            expected |= {(down, Reduce(stage, up)), (up, Reduce(stage, down))} if down != up else set()
    for device, (stage, peer) in sorted(expected - set(found)):
        message = f"the gradient of stage {stage} is never summed with its copy on device {peer}"
        report.error("missing-reduce", message, device=device)
    extra = [reduce not in expected or reduce in found[:number] for number, reduce in enumerate(found)]
    traffic.report(report, "extra-reduce", reduces[extra], "there is no copy left to sum with")
    weights = traffic.rows(Compute, "W", "BW")
    reduced = First((traffic.device[reduces], traffic.stage[reduces]), reduces)
    early = weights[reduced.of((traffic.device[weights], traffic.stage[weights])) < weights]
    traffic.report(report, "early-reduce", early, lambda row: f"stage {traffic.stage[row]} is reduced before it")


def _check_values(traffic: Traffic, report: Report) -> None:
    """On one device, values are made or waited for before they are used, and nothing is done twice."""
    device, value = traffic.device, traffic.values
    makers = traffic.rows(Compute, "F", "B", "BW")
    computes, sends, receives, waits = map(traffic.rows, (Compute, Send, Receive, Wait))
    made, posted, sent = (First((device[rows], value[rows]), rows) for rows in (makers, receives, sends))
    begun = posted.of((device[waits], value[waits])) < waits
    arrived = First((device[waits[begun]], value[waits[begun]]), waits[begun])

    def name(row: int) -> str:
        return name_value(traffic.value(row))

    operation = (device[computes], traffic.kind[computes], value[computes])
    repeated = computes[First(operation, computes).of(operation) < computes]
    traffic.report(report, "duplicate-operation", repeated, "it was executed before")
    resent = sends[sent.of((device[sends], value[sends])) < sends]
    reason = "was sent before (hint: a stage sends to the next one alone; an edge that skips stages has no words here)"
    traffic.report(report, "duplicate-send", resent, lambda row: f"{name(row)} {reason}")
    reposted = receives[posted.of((device[receives], value[receives])) < receives]
    traffic.report(report, "duplicate-receive", reposted, lambda row: f"{name(row)} was received before")
    absent = sends[made.of((device[sends], value[sends])) > sends]
    traffic.report(report, "send-before-value", absent, lambda row: f"{name(row)} does not exist here yet")
    idle = waits[~begun & (sent.of((device[waits], value[waits])) > waits)]
    traffic.report(report, "wait-for-nothing", idle, "no send or receive of it was started")
    waited = First((device[waits], value[waits]), waits)
    again = waits[waited.of((device[waits], value[waits])) < waits]
    traffic.report(report, "duplicate-wait", again, lambda row: f"{name(row)} was waited for before")
    forgotten = receives[arrived.of((device[receives], value[receives])) == NEVER]
    text = "it is received but nothing on this device waits for it"
    traffic.report(report, "never-waited", forgotten, text)
    _check_uses(traffic, report, made, arrived, posted)


def _check_uses(traffic: Traffic, report: Report, made: First, arrived: First, posted: First) -> None:
    """Every value that an operation needs was made on its device before, or has arrived there."""
    computes = traffic.rows(Compute)
    for rows, gradient, offset in needs(traffic.kind[computes], traffic.stage[computes], traffic.problem.stages):
        users = computes[rows]
        stage, microbatch = traffic.stage[users] + offset, traffic.microbatch[users]
        key = (traffic.device[users], traffic.number(gradient, stage, microbatch))
        bad = np.minimum(made.of(key), arrived.of(key)) > users
        texts = {}
        for number in np.flatnonzero(bad)[:MAX_OF_A_KIND]:
            need = Operation("B" if gradient else "F", int(stage[number]), int(microbatch[number]))
            waited = posted.of(key)[number] > users[number]
            how = "is neither made here nor received before" if waited else "was not waited for"
            texts[int(users[number])] = f"it needs {name_value(need)}, which {how}"
        traffic.report(report, "use-before-receive", users[bad], texts.__getitem__)


def _check_buffers(traffic: Traffic, report: Report) -> None:
    """A buffer is received into again only after the last backward, at the consuming stage, of what it holds."""
    device, stage, microbatch = traffic.device, traffic.stage, traffic.microbatch
    last, receives = traffic.rows(Compute, "W", "BW"), traffic.rows(Receive)
    consumer = stage[receives] + np.where(traffic.kind[receives] == NUMBER["F"], 1, -1)
    used = (device[last], stage[last], microbatch[last])
    released = First(used, last).of((device[receives], consumer, microbatch[receives]))
    pool = (traffic.slot[receives], consumer, traffic.kind[receives], device[receives])
    order = np.lexsort(pool)
    holders, takers = order[:-1], order[1:]
    same = np.all([column[holders] == column[takers] for column in pool], axis=0)
    free = (receives[holders] < released[holders]) & (released[holders] < receives[takers])
    pairs = receives[np.stack((takers, holders))[:, same & ~free]]
    overwritten = dict(sorted(pairs.T.tolist()))

    def message(row: int) -> str:
        return f"buffer {traffic.slot[row]} still holds {name_value(traffic.value(overwritten[row]))}"

    traffic.report(report, "slot-overwritten", np.array(list(overwritten), int), message)
