"""The timeline as one self-contained HTML page: zoom, hover, memory, critical path, idle time by cause, comparison.

The page is made of three files beside this one (`timeline.html`, `.css`, `.js`) and the data of one or two plans, as
typed arrays in compressed binary form. It asks nothing of any network. All text from files goes into the page as JSON
without markup, and its content security policy runs no script but ours.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from ..arrival import Arrival, arrivals, last_arrival
from ..errors import InputError
from ..idleness import CAUSES, REMEDIES, Gap, by_cause, gaps, levels
from ..operation import KINDS, parts
from ..plan import Plan
from ..problem import Problem
from ..simulation import Timeline
from ..slack import slacks
from . import style

_WAITS = ("dependency", "transfer", "memory", "order")
"""The causes of idle time between the first and the last step of a device."""
_LIGHTER = 16
"""Added to the number of a kind where the chunk is drawn in the lighter shade."""


def draw(plans: Sequence[Plan]) -> str:
    """The page of one plan, or of two that are compared on one scale of time.

    Raises InputError when the two count time in different units.
    """
    units = sorted({plan.problem.profile.time_unit for plan in plans})
    if len(units) > 1:
        raise InputError(f"plans in different units of time cannot be drawn on one scale: {units[0]!r}, {units[1]!r}")
    data = {
        "kinds": [_palette(kind) for kind in KINDS],
        "causes": [
            {"name": name, "meaning": CAUSES[name], "remedy": REMEDIES[name], "colour": style.CAUSE_COLOURS[name]}
            for name in CAUSES
        ],
        "legend": _legend(plans),
        "comparison": _comparison(*plans) if len(plans) == 2 else "",
        "plans": [_plan(plan) for plan in plans],
    }
    script, sheet = (_resource(f"timeline.{kind}") for kind in ("js", "css"))
    filled = {
        "title": html.escape(" against ".join(plan.schedule.method for plan in plans)),
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(sheet)}'",
        "style": sheet,
        "script": script,
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: filled[place[1]], _resource("timeline.html"))


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _palette(kind: str) -> dict[str, Any]:
    shades = [style.COLOURS[kind], style.lighter(style.COLOURS[kind], style.SECOND_STAGE)]
    return {"name": kind, "meaning": style.MEANINGS[kind], "colours": shades, "inks": [style.ink(s) for s in shades]}


def _legend(plans: Sequence[Plan]) -> list[dict[str, str]]:
    """(kind, text) of every kind that a plan uses and of all else that is drawn; once where two plans say the same."""
    entries: dict[tuple[str, str], list[str]] = {}
    for letter, plan in zip("AB", plans, strict=False):
        lines = [*style.legend(plan.problem, style.kinds(plan.timeline))]
        lines.append(("transfer", style.transfer_text(plan.problem)))
        if style.has_chunks(plan.problem):
            lines.append(("chunks", style.CHUNKS))
        lines.append(("path", "critical path"))
        for line in lines:
            entries.setdefault(line, []).append(letter)
    order = [*style.COLOURS, "transfer", "chunks", "path"]
    return [
        {"kind": kind, "text": text if len(letters) == len(plans) else f"{text} ({letters[0]})"}
        for (kind, text), letters in sorted(entries.items(), key=lambda entry: order.index(entry[0][0]))
    ]


def _plan(plan: Plan) -> dict[str, Any]:
    """What the page knows of one plan; arrays with one item per step are packed into `data`."""
    timeline, problem = plan.timeline, plan.problem
    found = arrivals(timeline)
    idle = gaps(timeline, found)
    layout, data = _pack(_steps(timeline, found) | _gaps(timeline, idle))
    rows = [_device(timeline, device, gaps) for device, gaps in enumerate(idle)]
    return {
        "name": plan.schedule.method,
        "facts": _facts(plan),
        "answer": _answer(problem, timeline, idle),
        "objective": problem.objective,
        "unit": problem.profile.time_unit,
        "memoryUnit": problem.profile.memory_unit,
        "begin": min((starts[0] for starts in timeline.starts if starts), default=0.0),
        "makespan": timeline.makespan,
        "devices": rows,
        "steps": list(map(len, timeline.schedule.orders)),
        "gaps": list(map(len, idle)),
        "layout": layout,
        "data": data,
    }


def _steps(timeline: Timeline, found: list[list[tuple[Arrival, ...]]]) -> dict[str, np.ndarray]:
    """One item per step, device by device. A pair is its forward, with the backward in `pair...`."""
    problem, orders = timeline.problem, timeline.schedule.orders
    offsets = [0, *itertools.accumulate(map(len, orders))]
    steps = [parts(step) for order in orders for step in order]
    shades = [{stage: _LIGHTER * (chunk % 2) for chunk, stage in enumerate(held)} for held in problem.placement.copies]
    device_of = np.repeat(np.arange(len(orders)), list(map(len, orders))).tolist()
    awaited = []
    for device, order in enumerate(orders):
        for index in range(len(order)):
            free = timeline.ends[device][index - 1] if index else 0.0
            need = last_arrival(found[device][index])
            waited = need is not None and need.device != device and need.time > free
            awaited.append(offsets[need.device] + need.step if need is not None and waited else -1)
    held = [levels(timeline, device) for device in range(len(orders))]
    positions: list[dict[Any, int]] = [{} for _ in orders]
    critical = []
    for device, step, _, _ in timeline.critical_path():
        if not positions[device]:
            positions[device] = {known: index for index, known in enumerate(orders[device])}
        critical.append(offsets[device] + positions[device][step])
    pairs = [number for number, step in enumerate(steps) if len(step) == 2]

    def kinds(numbers: Sequence[int], half: int) -> np.ndarray:
        codes = {kind: number for number, kind in enumerate(KINDS)}
        found = (codes[steps[n][half].kind] + shades[device_of[n]][steps[n][half].stage] for n in numbers)
        return np.fromiter(found, np.uint8, len(numbers))

    def operations(numbers: Sequence[int], half: int, key: int) -> np.ndarray:
        return np.fromiter((steps[n][half][key] for n in numbers), np.uint32, len(numbers))

    everything = range(len(steps))
    return {
        "start": np.concatenate([np.array(starts, np.float64) for starts in timeline.starts]),
        "end": np.concatenate([np.array(ends, np.float64) for ends in timeline.ends]),
        "slack": np.concatenate([np.array(slack, np.float64) for slack in slacks(timeline, found)]),
        "during": np.concatenate([during for during, _ in held]),
        "after": np.concatenate([after for _, after in held]),
        "awaited": np.array(awaited, np.int32),
        "critical": np.array(critical, np.uint32),
        "stage": operations(everything, 0, 1),
        "microbatch": operations(everything, 0, 2),
        "kind": kinds(everything, 0),
        "pair": np.array(pairs, np.uint32),
        "pairStage": operations(pairs, 1, 1),
        "pairMicrobatch": operations(pairs, 1, 2),
        "pairKind": kinds(pairs, 1),
    }


def _gaps(timeline: Timeline, idle: list[list[Gap]]) -> dict[str, np.ndarray]:
    """One item per gap, device by device."""
    offsets = [0, *itertools.accumulate(map(len, timeline.schedule.orders))]
    flat = [gap for found in idle for gap in found]
    codes = {cause: number for number, cause in enumerate(CAUSES)}
    steps = [-1 if gap.step is None else offsets[gap.step[0]] + gap.step[1] for gap in flat]
    return {
        "gapStart": np.array([gap.start for gap in flat], np.float64),
        "gapEnd": np.array([gap.end for gap in flat], np.float64),
        "gapStep": np.array(steps, np.int32),
        "gapCause": np.array([codes[gap.cause] for gap in flat], np.uint8),
    }


_TYPES = {"f8": "Float64Array", "i4": "Int32Array", "u4": "Uint32Array", "u1": "Uint8Array"}


def _pack(arrays: dict[str, np.ndarray]) -> tuple[list[tuple[str, str, int]], str]:
    """(name, JavaScript type, length) of every array, and all of them in a row: gzip, then base64.

    The largest items come first, so that each array is aligned to its items.
    """
    ordered = sorted(arrays.items(), key=lambda entry: -entry[1].itemsize)
    layout = [(name, _TYPES[array.dtype.str[1:]], len(array)) for name, array in ordered]
    content = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for _, array in ordered)
    return layout, base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _device(timeline: Timeline, device: int, idle: list[Gap]) -> dict[str, Any]:
    """One row of the table of idle time."""
    problem, cap = timeline.problem, timeline.problem.caps[device]
    return {
        "stages": ", ".join(map(str, problem.placement.copies[device])),
        "busy": timeline.busy[device],
        "idle": list(by_cause(idle).values()),
        "for": _waits_most_for(idle),
        "static": problem.static_memory[device],
        "peak": timeline.peak_memory[device],
        "cap": None if math.isinf(cap) else cap,
    }


def _waits_most_for(idle: list[Gap]) -> tuple[int, float] | None:
    """(device, time) of the device that is waited for most; None when nothing is waited for."""
    waits: dict[int, float] = defaultdict(float)
    for gap in idle:
        if gap.cause in ("dependency", "transfer") and gap.step is not None:
            waits[gap.step[0]] += gap.length
    return max(waits.items(), key=lambda wait: wait[1]) if waits else None


def _facts(plan: Plan) -> list[tuple[str, str]]:
    """What stands at the head of the page, as (label, text)."""
    timeline, problem, certificate = plan.timeline, plan.problem, plan.certificate
    time, memory = problem.profile.time_unit, problem.profile.memory_unit
    ratio = timeline.bubble_ratio()
    caps = sorted({cap for cap in problem.caps if not math.isinf(cap)})
    cap = f"cap {_amount(caps[0], memory)}" if len(caps) == 1 else "a cap for each device" if caps else "no cap"
    shape = f"{_count(problem.devices, 'device')}, {_count(problem.stages, 'stage')} ({problem.placement})"
    proof = f"{certificate.name}, {certificate.proof}"
    bound = f"{_amount(certificate.lower_bound, time)} ({proof}; gap {plan.gap:.2%})"
    return [
        ("devices", f"{shape}, {_count(problem.microbatches, 'micro-batch', 'micro-batches')}"),
        ("objective", f"{problem.objective} {_amount(timeline.value, time)}, {plan.status}"),
        ("lower bound", bound if certificate.lower_bound > 0 else "none known"),
        ("makespan, span", f"{_amount(timeline.makespan, time)}, {_amount(timeline.span, time)}"),
        ("bubble ratio", "-" if ratio is None else f"{ratio:.2%} (idle time over ideal time)"),
        ("idle fraction", f"{timeline.idle_fraction:.2%} (of all device time)"),
        ("peak memory", f"{_amount(max(timeline.peak_memory), memory)} on the fullest device, {cap}"),
        *(("warning", warning) for warning in plan.warnings),
    ]


def _answer(problem: Problem, timeline: Timeline, idle: list[list[Gap]]) -> list[str]:
    """Which device waits most, why, and what would help, in sentences."""
    unit = problem.profile.time_unit
    totals = [by_cause(found) for found in idle]
    waits = [sum(total[cause] for cause in _WAITS) for total in totals]
    most = max(waits)
    if most <= 0:
        first = "No device waits between its first and its last step."
    else:
        device = waits.index(most)
        cause = max(_WAITS, key=lambda name: totals[device][name])
        waited = _waits_most_for(idle[device])
        source = f", most for device {waited[0]}" if cause in ("dependency", "transfer") and waited else ""
        ties = [other for other, wait in enumerate(waits) if math.isclose(wait, most, rel_tol=1e-9)]
        subject = f"Device {device} waits" if len(ties) == 1 else f"Devices {_list(ties)} wait"
        first = (
            f"{subject} most: {_amount(most, unit)} between first and last step, of a makespan of "
            f"{_amount(timeline.makespan, unit)}. The main cause{'' if len(ties) == 1 else f' on device {device}'} is "
            f"{cause}, {_amount(totals[device][cause], unit)}{source}: {CAUSES[cause]}. "
            f"What would help: {REMEDIES[cause]}."
        )
    everything = {cause: sum(total[cause] for total in totals) for cause in CAUSES}
    whole = sum(everything.values())
    if whole <= 0:
        return [first]
    shares = sorted(((time, cause) for cause, time in everything.items() if time > 0), reverse=True)
    text = ", ".join(f"{cause} {time / whole:.0%}" for time, cause in shares)
    answer = [first, f"Idle time of all devices together, {_amount(whole, unit)}: {text}."]
    if problem.objective == "span":
        answer.append("The objective is span: warm-up and drain do not count in it.")
    return answer


def _comparison(first: Plan, second: Plan) -> str:
    """One sentence on the first plan against the second."""
    a, b = first.timeline, second.timeline
    time, memory = first.problem.profile.time_unit, first.problem.profile.memory_unit
    change = 1 - a.makespan / b.makespan if b.makespan else 0.0
    verdict = f"{abs(change):.2%} {'less' if change > 0 else 'more'} time than" if change else "as much time as"
    return (
        f"A, {first.schedule.method}, takes {verdict} B, {second.schedule.method} (makespan "
        f"{_amount(a.makespan, time)} against {_amount(b.makespan, time)}), and holds "
        f"{_amount(max(a.peak_memory), memory)} against "
        f"{_amount(max(b.peak_memory), second.problem.profile.memory_unit)} on the fullest device."
    )


def _amount(value: float, unit: str) -> str:
    return f"{value:g} {unit}" if unit else f"{value:g}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _list(numbers: list[int]) -> str:
    """Numbers as people list them, the middle of many left out."""
    shown = (
        [str(number) for number in numbers] if len(numbers) <= 8 else [*map(str, numbers[:6]), "...", str(numbers[-1])]
    )
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
