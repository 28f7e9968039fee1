"""The timeline as one self-contained HTML page: zoom, hover, memory, critical path, idle time by cause, comparison.

The page is made of the files beside this one (`timeline.html`, `.css`, and the scripts in `timeline/`) and the data of
one or two plans, as typed arrays in compressed binary form. It asks nothing of any network. All text from files goes
into the page as JSON without markup, and its content security policy runs no script but ours.
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
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from ..analysis import Analysis, amount, counts, listed
from ..errors import InputError
from ..idleness import CAUSES, awaited, levels, remedy
from ..operation import KINDS, parts
from ..plan import Plan
from . import style

_SCRIPTS = ("data", "words", "drawing", "memory", "moving", "page")
"""The parts of the page's script, in the order in which they follow each other."""
_LENGTHS = {
    "makespan": "first start to last end of all devices",
    "span": "first start to last end of the slowest device",
}
"""The two objectives, in words."""
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
        "causes": [{"name": name, "meaning": CAUSES[name], "colour": style.CAUSE_COLOURS[name]} for name in CAUSES],
        "legend": _legend(plans),
        "comparison": _comparison(*plans) if len(plans) == 2 else "",
        "plans": [_plan(plan) for plan in plans],
    }
    script = "\n".join(_resource(f"timeline/{part}.js") for part in _SCRIPTS)
    sheet = _resource("timeline.css")
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
        if style.has_chunks(plan.problem):
            lines.append(("chunks", style.CHUNKS))
        lines += [("path", "critical path"), ("tight", "without slack")]
        for line in lines:
            entries.setdefault(line, []).append(letter)
    order = [*style.COLOURS, "chunks", "path", "tight"]
    return [
        {"kind": kind, "text": text if len(letters) == len(plans) else f"{text} ({letters[0]})"}
        for (kind, text), letters in sorted(entries.items(), key=lambda entry: order.index(entry[0][0]))
    ]


def _plan(plan: Plan) -> dict[str, Any]:
    """What the page knows of one plan; arrays with one item per step are packed into `data`."""
    timeline, problem, analysis = plan.timeline, plan.problem, Analysis(plan)
    layout, data = _pack(_steps(analysis) | _gaps(analysis))
    return {
        "name": plan.schedule.method,
        "facts": _facts(plan),
        "answer": analysis.sentences(),
        "remedies": [remedy(cause, optimal=plan.gap == 0) for cause in CAUSES],
        "costly": [_without_slack(analysis, cause) for cause in CAUSES],
        "objective": problem.objective,
        "unit": problem.profile.time_unit,
        "memoryUnit": problem.profile.memory_unit,
        "begin": min((starts[0] for starts in timeline.starts if starts), default=0.0),
        "makespan": timeline.makespan,
        "devices": [_device(analysis, device) for device in range(problem.devices)],
        "steps": list(map(len, timeline.schedule.orders)),
        "gaps": list(map(len, analysis.gaps)),
        "layout": layout,
        "data": data,
    }


def _steps(analysis: Analysis) -> dict[str, np.ndarray]:
    """One item per step, device by device. A pair is its forward, with the backward in `pair...`."""
    timeline, problem = analysis.plan.timeline, analysis.plan.problem
    orders = timeline.schedule.orders
    offsets = [0, *itertools.accumulate(map(len, orders))]
    steps = [parts(step) for order in orders for step in order]
    shades = [{stage: _LIGHTER * (chunk % 2) for chunk, stage in enumerate(held)} for held in problem.placement.copies]
    device_of = np.repeat(np.arange(len(orders)), list(map(len, orders))).tolist()
    sources = []
    for device, order in enumerate(orders):
        for index in range(len(order)):
            need = awaited(timeline, analysis.arrivals, device, index)
            sources.append(-1 if need is None else offsets[need.device] + need.step)
    held = [levels(timeline, device) for device in range(len(orders))]
    positions: list[dict[Any, int]] = [{} for _ in orders]
    critical = []
    for device, step, _, _ in analysis.path:
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
        "slack": np.concatenate([np.array(slack, np.float64) for slack in analysis.slacks]),
        "during": np.concatenate([during for during, _ in held]),
        "after": np.concatenate([after for _, after in held]),
        "awaited": np.array(sources, np.int32),
        "root": np.concatenate([np.array(roots, np.uint32) for roots in analysis.roots]),
        "critical": np.array(critical, np.uint32),
        "stage": operations(everything, 0, 1),
        "microbatch": operations(everything, 0, 2),
        "kind": kinds(everything, 0),
        "pair": np.array(pairs, np.uint32),
        "pairStage": operations(pairs, 1, 1),
        "pairMicrobatch": operations(pairs, 1, 2),
        "pairKind": kinds(pairs, 1),
    }


def _gaps(analysis: Analysis) -> dict[str, np.ndarray]:
    """One item per gap, device by device."""
    offsets = [0, *itertools.accumulate(map(len, analysis.plan.schedule.orders))]
    flat = [gap for found in analysis.gaps for gap in found]
    codes = {cause: number for number, cause in enumerate(CAUSES)}
    steps = [-1 if gap.step is None else offsets[gap.step[0]] + gap.step[1] for gap in flat]
    delayed = [-1 if gap.delayed is None else offsets[gap.device] + gap.delayed for gap in flat]
    return {
        "gapStart": np.array([gap.start for gap in flat], np.float64),
        "gapEnd": np.array([gap.end for gap in flat], np.float64),
        "gapLevel": np.array([math.nan if gap.level is None else gap.level for gap in flat], np.float64),
        "gapStep": np.array(steps, np.int32),
        "gapDelayed": np.array(delayed, np.int32),
        "gapCause": np.array([codes[gap.cause] for gap in flat], np.uint8),
    }


def _without_slack(analysis: Analysis, cause: str) -> float | None:
    """How much of the idle time with this cause delays steps without slack; None for the drain, which delays none."""
    if cause == "drain":
        return None
    return math.fsum(
        gap.length for found in analysis.gaps for gap in found if gap.cause == cause and analysis.slack(gap) == 0
    )


_TYPES = {"f8": "Float64Array", "i4": "Int32Array", "u4": "Uint32Array", "u1": "Uint8Array"}


def _pack(arrays: dict[str, np.ndarray]) -> tuple[list[tuple[str, str, int]], str]:
    """(name, JavaScript type, length) of every array, and all of them in a row: gzip, then base64.

    The largest items come first, so that each array is aligned to its items.
    """
    ordered = sorted(arrays.items(), key=lambda entry: -entry[1].itemsize)
    layout = [(name, _TYPES[array.dtype.str[1:]], len(array)) for name, array in ordered]
    content = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for _, array in ordered)
    return layout, base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _device(analysis: Analysis, device: int) -> dict[str, Any]:
    """One row of the table of idle time."""
    timeline, problem = analysis.plan.timeline, analysis.plan.problem
    cap = problem.caps[device]
    return {
        "stages": ", ".join(map(str, problem.placement.copies[device])),
        "busy": timeline.busy[device],
        "idle": list(analysis.idle[device].values()),
        "for": analysis.waits_for(device),
        "tight": counts(analysis.tight[device]),
        "static": problem.static_memory[device],
        "peak": timeline.peak_memory[device],
        "cap": None if math.isinf(cap) else cap,
    }


def _facts(plan: Plan) -> list[tuple[str, str]]:
    """What stands at the head of the page, as (label, text)."""
    timeline, problem, certificate = plan.timeline, plan.problem, plan.certificate
    time, memory = problem.profile.time_unit, problem.profile.memory_unit
    ratio = timeline.bubble_ratio()
    caps = ["none" if math.isinf(cap) else amount(cap, "") for cap in problem.caps]
    each = caps[:1] if len(set(caps)) == 1 else caps
    cap = "no cap" if each == ["none"] else f"{'caps' if len(each) > 1 else 'cap'} {listed(each)} {memory}".rstrip()
    fullest = timeline.peak_memory.index(max(timeline.peak_memory))
    other = "span" if problem.objective == "makespan" else "makespan"
    shape = f"{_count(problem.devices, 'device')}, {_count(problem.stages, 'stage')} ({problem.placement})"
    bound = f"{amount(certificate.lower_bound, time)} ({certificate.name}, {certificate.proof}; gap {plan.gap:.2%})"
    return [
        ("devices", f"{shape}, {_count(problem.microbatches, 'micro-batch', 'micro-batches')}"),
        (
            "objective",
            f"{problem.objective} {amount(timeline.value, time)} ({_LENGTHS[problem.objective]}), {plan.status}",
        ),
        (other, f"{amount(getattr(timeline, other), time)} ({_LENGTHS[other]})"),
        ("lower bound", bound if certificate.lower_bound > 0 else "none known"),
        (
            "bubble ratio",
            "-"
            if ratio is None
            else f"{ratio:.2%}, by which the {problem.objective} exceeds the busiest device's work",
        ),
        ("idle fraction", f"{timeline.idle_fraction:.2%} of the time of all devices together"),
        ("peak memory", f"{amount(timeline.peak_memory[fullest], memory)} on device {fullest}, {cap}"),
        ("link", style.transfer_text(problem)),
        *(("warning", warning) for warning in plan.warnings),
    ]


def _comparison(first: Plan, second: Plan) -> str:
    """One sentence on the first plan against the second."""
    a, b = first.timeline, second.timeline
    time, memory = first.problem.profile.time_unit, first.problem.profile.memory_unit
    change = 1 - a.makespan / b.makespan if b.makespan else 0.0
    verdict = f"{abs(change):.2%} {'less' if change > 0 else 'more'} time than" if change else "as much time as"
    return (
        f"A, {first.schedule.method}, takes {verdict} B, {second.schedule.method} (makespan "
        f"{amount(a.makespan, time)} against {amount(b.makespan, time)}), and holds "
        f"{amount(max(a.peak_memory), memory)} against "
        f"{amount(max(b.peak_memory), second.problem.profile.memory_unit)} on the fullest device."
    )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
