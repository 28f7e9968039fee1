"""Communication in torch's files: from SEND and RECV to instruction streams, and the actions on whole stages.

`2SEND_F0` sends what 2F0 made to the owner of stage 3; `3RECV_F0` posts its receive there, without waiting. The
computation that needs a value waits for it. `REDUCE_GRAD` sums the weight gradients of a stage, once, after the last.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from ..diagnostic import Report
from ..instruction import Compute, Instruction, Receive, Send, Stream, Wait
from ..operation import Operation, parts
from ..placement import Placement
from .drawing import Communication, Drawing
from .torch_csv import step_text

_STEP = {"SEND_F": 1, "SEND_B": -1, "RECV_F": -1, "RECV_B": 1}
"""Where the other stage of a transfer is."""


def streams_of(
    drawing: Drawing, placement: Placement, microbatches: int, report: Report
) -> tuple[tuple[Stream, ...], list[array[int]]]:
    """The stream of each device, and for each of its instructions the entry of the device's row it stands for.

    What a device cannot send or receive is reported and left out.
    """
    streams, origins = [], []
    for device, row in enumerate(drawing.rows):
        stream: list[Instruction] = []
        origin = array("I")
        posted: dict[tuple[str, int, int], Operation] = {}
        routes: dict[tuple[str, int, bool], _Route | _Fault] = {}
        for place, item in enumerate(row.items):
            if not isinstance(item, Communication):
                for kind, stage, microbatch in parts(item):
                    if kind == "F":
                        value = posted.pop(("F", stage - 1, microbatch), None)
                    else:
                        value = posted.pop(("B", stage + 1, microbatch), None) if kind != "W" else None
                    if value is not None:
                        stream.append(Wait(value))
                        origin.append(place)
                stream.append(Compute(item))
                origin.append(place)
            elif item.microbatch is not None:
                verb, stage, microbatch = item.verb, item.stage, item.microbatch
                up = placement.goes_up(microbatch, microbatches)
                route = routes.get((verb, stage, up))
                if route is None:
                    route = _route(verb, stage, device, placement.owners(microbatch, microbatches))
                    routes[verb, stage, up] = route
                if type(route) is not _Route or microbatch >= microbatches:
                    fault = route if isinstance(route, _Fault) else _no_microbatch(microbatch, microbatches)
                    report.error(fault.code, f"{item}: {fault.reason}", operation=item, **row.at(device, place))
                    continue
                value = Operation(verb[-1], route.maker, microbatch)
                if route.receives:
                    posted[value] = value
                    stream.append(Receive(value, route.peer, microbatch))
                else:
                    stream.append(Send(value, route.peer))
                origin.append(place)
        streams.append(tuple(stream))
        origins.append(origin)
    return tuple(streams), origins


class _Route(NamedTuple):
    """What a kind of SEND or RECV moves: what stage `maker` makes, to or from device `peer`."""

    receives: bool
    maker: int
    peer: int


class _Fault(NamedTuple):
    """Why a device cannot execute a SEND or RECV."""

    code: str
    reason: str


def _no_microbatch(microbatch: int, microbatches: int) -> _Fault:
    reason = f"micro-batch {microbatch} is out of range, there are 0 to {microbatches - 1}"
    return _Fault("microbatch-out-of-range", reason)


def _route(verb: str, stage: int, device: int, owners: tuple[int, ...]) -> _Route | _Fault:
    """The route of a transfer that a device states."""
    if stage >= len(owners):
        return _Fault("stage-out-of-range", f"there is no stage {stage}, only 0 to {len(owners) - 1}")
    if owners[stage] != device:
        return _Fault("wrong-device", f"stage {stage} belongs to device {owners[stage]}, not {device}")
    other = stage + _STEP[verb]
    if not 0 <= other < len(owners):
        where = "first" if other < 0 else "last"
        return _Fault("no-peer", f"stage {stage} is the {where}, there is nothing beyond it")
    if owners[other] == device:
        return _Fault("no-peer", f"stages {stage} and {other} are on the same device, so nothing is transferred")
    receives = verb.startswith("RECV")
    return _Route(receives, other if receives else stage, owners[other])


def spell(instruction: Instruction) -> str:
    """An instruction in the words of torch's files."""
    if not isinstance(instruction, Send | Receive | Wait):
        return str(instruction)
    kind, stage, microbatch = instruction.value
    if isinstance(instruction, Send):
        return f"{stage}SEND_{kind}{microbatch}"
    return f"{stage + 1 if kind == 'F' else stage - 1}RECV_{kind}{microbatch}"


def write(streams: Sequence[Stream]) -> str:
    """The CSV with communication, in today's letters, of the streams of a plan.

    torch waits by itself where a value is used, so waits have no cell; groups are left out, which is safe because the
    lowering has put all transfers in one order.
    """
    rows = []
    for stream in streams:
        last = {
            operation.stage: index
            for index, instruction in enumerate(stream)
            if isinstance(instruction, Compute)
            for operation in parts(instruction.step)
            if operation.kind in ("W", "BW")
        }
        cells: list[str] = []
        due: list[str] = []  # reductions, which let the sends of the same value go first
        for index, instruction in enumerate(stream):
            if isinstance(instruction, Compute):
                cells += [*due, step_text(instruction.step)]
                done = {operation.stage for operation in parts(instruction.step)}
                due = [f"{stage}REDUCE_GRAD" for stage in sorted(done) if last.get(stage) == index]
            elif isinstance(instruction, Receive):
                cells += [*due, spell(instruction)]
                due = []
            elif isinstance(instruction, Send):
                cells.append(spell(instruction))
        cells += due
        rows.append(",".join(cells) + "\n")
    return "".join(rows)


def check_whole_stages(drawing: Drawing, placement: Placement, report: Report) -> None:
    """REDUCE_GRAD, UNSHARD and RESHARD, where the file has them.

    Each stage that computes weight gradients is reduced once, after the last of them. A stage is unsharded while it
    computes, if it ever is, and neither unsharded nor resharded twice. A file without REDUCE_GRAD is wrong when it
    shards: torch (2.13) then never reduces what replicas have summed. Otherwise only the division by the number of
    micro-batches is missing, which whoever sums losses does without.
    """
    verbs = {item.verb for row in drawing.rows for item in row.items if isinstance(item, Communication)}
    if verbs & {"REDUCE_GRAD", "UNSHARD", "RESHARD"}:
        for device in range(len(drawing.rows)):
            _check_reductions(drawing, placement, device, report)
    elif drawing.communicates and any(
        operation.kind in ("W", "BW")
        for row in drawing.rows
        for item in row.items
        if not isinstance(item, Communication)
        for operation in parts(item)
    ):
        report.warning(
            "no-reduce",
            "the file has no REDUCE_GRAD: torch would then neither divide the gradients by the number of micro-batches "
            "nor reduce them where stages are sharded over replicas",
        )
    if "UNSHARD" in verbs or "RESHARD" in verbs:
        report.warning("sharding", "UNSHARD and RESHARD are checked for their order; their time is not counted")
        for device in range(len(drawing.rows)):
            _check_shards(drawing, device, report)


def _check_reductions(drawing: Drawing, placement: Placement, device: int, report: Report) -> None:
    row = drawing.rows[device]
    reduced: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, item in enumerate(row.items):
        if not isinstance(item, Communication):
            for operation in parts(item):
                if operation.kind in ("W", "BW"):
                    last[operation.stage] = place
        elif item.verb == "REDUCE_GRAD":
            at = row.at(device, place)
            owner = placement.down[item.stage] if item.stage < placement.stages else None
            if owner is None:
                text = f"{item}: there is no stage {item.stage}, only 0 to {placement.stages - 1}"
                report.error("stage-out-of-range", text, operation=item, **at)
            elif owner != device:
                text = f"{item}: stage {item.stage} belongs to device {owner}, not {device}"
                report.error("wrong-device", text, operation=item, **at)
            elif item.stage in reduced:
                text = f"{item}: the gradient of stage {item.stage} was reduced before"
                report.error("extra-reduce", text, operation=item, **at)
            else:
                reduced[item.stage] = place
    for stage, end in sorted(last.items()):
        if stage not in reduced:
            report.error(
                "missing-reduce",
                f"the gradient of stage {stage} is never reduced: there is no {stage}REDUCE_GRAD after its last "
                f"weight gradient, {drawing.spell(row.items[end])}",
                **row.at(device, end),
            )
        elif reduced[stage] < end:
            report.error(
                "early-reduce",
                f"{stage}REDUCE_GRAD comes before {drawing.spell(row.items[end])} and misses its weight gradient",
                operation=f"{stage}REDUCE_GRAD",
                **row.at(device, reduced[stage]),
            )


def _check_shards(drawing: Drawing, device: int, report: Report) -> None:
    row = drawing.rows[device]
    whole: set[int] = set()
    managed = {
        item.stage for item in row.items if isinstance(item, Communication) and item.verb in ("UNSHARD", "RESHARD")
    }
    for place, item in enumerate(row.items):
        at = row.at(device, place)
        if isinstance(item, Communication):
            if item.verb == "UNSHARD":
                if item.stage in whole:
                    text = f"{item}: stage {item.stage} is unsharded already"
                    report.error("extra-unshard", text, operation=item, **at)
                whole.add(item.stage)
            elif item.verb == "RESHARD":
                if item.stage not in whole:
                    text = f"{item}: stage {item.stage} is not unsharded"
                    report.error("extra-reshard", text, operation=item, **at)
                whole.discard(item.stage)
        else:
            for operation in parts(item):
                if operation.stage in managed - whole:
                    text = f"{drawing.spell(item)}: stage {operation.stage} computes while it is sharded"
                    report.error("sharded", text, operation=drawing.spell(item), **at)


def check_loss_order(drawing: Drawing, placement: Placement, report: Report) -> None:
    """torch keeps the losses of the last stage in the order of its forwards and takes them by micro-batch number.

    Where forwards of the last stage leave the order of the numbers, backwards start from another micro-batch's loss.
    """
    device = placement.down[-1]
    expected = 0
    for place, item in enumerate(drawing.rows[device].items):
        if isinstance(item, Communication):
            continue
        for operation in parts(item):
            if operation.kind != "F" or operation.stage != placement.stages - 1:
                continue
            if operation.microbatch != expected:
                name = drawing.spell(item)
                message = (
                    f"{name}: the last stage takes its forwards out of order (micro-batch {expected} is next), and "
                    "torch gives a backward the loss of the forward that came at its number"
                )
                say = report.error if drawing.lowered else report.warning
                say("loss-order", message, operation=name, **drawing.rows[device].at(device, place))
                return
            expected += 1
