"""What all pictures share: colours, labels and the legend."""

from __future__ import annotations

from ..operation import KINDS, Operation, Pair, Step, parts
from ..problem import Problem
from ..simulation import Timeline

COLOURS = {"F": "#0072b2", "B": "#009e73", "W": "#e69f00", "BW": "#d55e00", "pair": "#cc79a7"}
"""By kind of step: the palette of Okabe and Ito, which people with any colour vision can tell apart."""

MEANINGS = {"F": "forward", "B": "input gradient", "W": "weight gradient", "BW": "backward", "pair": "F with backward"}

CAUSE_COLOURS = {
    "warm-up": "#e4e4e4",
    "dependency": "#d3e3f3",
    "transfer": "#e3d3f0",
    "memory": "#f9cdc4",
    "order": "#fbefb5",
    "drain": "#c9cfc6",
}
"""By cause of idle time: pale, so that steps stand out."""

SECOND_STAGE = 0.45
"""How much lighter every second stage of a device is drawn, as a share of the way to white."""

CHUNKS = "every second stage of a device is lighter"


def has_chunks(problem: Problem) -> bool:
    """True when a device owns more than one stage, so that some steps are drawn lighter."""
    return any(len(held) > 1 for held in problem.placement.copies)


def kind(step: Step) -> str:
    """F, B, W, BW, or "pair"."""
    return step.kind if isinstance(step, Operation) else "pair"


def kinds(timeline: Timeline) -> set[str]:
    """The kinds that occur, alone or in a pair."""
    steps = [step for order in timeline.schedule.orders for step in order]
    return {kind(step) for step in steps} | {operation.kind for step in steps for operation in parts(step)}


def label(step: Step) -> str:
    """The number of the micro-batch, or of both."""
    if isinstance(step, Pair):
        return f"{step.forward.microbatch}+{step.backward.microbatch}"
    return str(step.microbatch)


def colour(problem: Problem, device: int, step: Step) -> str:
    """The colour of a step: that of its kind, lighter for every second chunk of the device."""
    first = step if isinstance(step, Operation) else step.forward
    chunk = problem.placement.copies[device].index(first.stage)
    return lighter(COLOURS[kind(step)], SECOND_STAGE if chunk % 2 else 0.0)


def lighter(colour: str, share: float) -> str:
    """The colour with this share of the way to white gone."""
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in _channels(colour))


def mixture(shares: dict[str, float]) -> str:
    """The mean of colours, each weighed by its share."""
    whole = sum(shares.values())
    sums = [sum(_channels(colour)[channel] * share for colour, share in shares.items()) for channel in range(3)]
    return "#" + "".join(f"{round(channel / whole):02x}" for channel in sums)


def ink(colour: str) -> str:
    """Black or white, whichever reads better on this colour (relative luminance, WCAG 2)."""
    linear = [((c / 255 + 0.055) / 1.055) ** 2.4 if c > 10 else c / 255 / 12.92 for c in _channels(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def legend(problem: Problem, kinds: set[str]) -> list[tuple[str, str]]:
    """(kind, text) for the kinds that occur: what it is, and what it costs."""
    unit = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
    used = [(problem.costs[flag], stage) for stage, line in enumerate(problem.chosen) for flag in set(line)]
    costs = {name: f" {_range(tuple(table[name][stage].duration for table, stage in used))}{unit}" for name in KINDS}
    costs["pair"] = f" in {_pair_ratio(problem)}the sum of their times"
    return [(name, f"{meaning}{costs[name]}") for name, meaning in MEANINGS.items() if name in kinds]


def _pair_ratio(problem: Problem) -> str:
    ratio = problem.profile.overlapped_pair
    text = _range(ratio if isinstance(ratio, tuple) else (1.0 if ratio is None else ratio,))
    return "" if text == "1" else f"{text} times "


def transfer_text(problem: Problem) -> str:
    """What a transfer between neighbouring stages takes."""
    unit = f" {problem.profile.time_unit}" if problem.profile.time_unit else ""
    owners = problem.placement.down
    times = [
        problem.transfer(owners[stage], owners[stage + 1], stage)
        for stage in range(problem.stages - 1)
        if owners[stage] != owners[stage + 1]
    ]
    return f"transfer {_range(tuple(times))}{unit}" if times else "no transfers"


def _range(values: tuple[float, ...]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
