"""Analysis: why a plan takes as long as it does and what would help, in sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from .arrival import Arrival, arrivals
from .idleness import CAUSES, Gap, by_cause, by_root, gaps, remedy, roots
from .operation import KINDS, Step, parts
from .plan import Plan
from .slack import slacks
from .wording import counted

MOST_LISTED = 8
"""Of longer lists the middle is left out."""


@dataclass(frozen=True)
class Analysis:
    """What is known of a plan's time beyond its value. Each part is computed when it is first asked for."""

    plan: Plan

    @cached_property
    def arrivals(self) -> list[list[tuple[Arrival, ...]]]:
        """By device and index, the inputs of every step."""
        return arrivals(self.plan.timeline)

    @cached_property
    def gaps(self) -> list[list[Gap]]:
        """By device, its idle time."""
        return gaps(self.plan.timeline, self.arrivals)

    @cached_property
    def idle(self) -> list[dict[str, float]]:
        """By device, its idle time by cause."""
        return [by_cause(found) for found in self.gaps]

    @cached_property
    def roots(self) -> list[list[int]]:
        """By device and index, the busy device that a step is held up by in the end."""
        return roots(self.plan.timeline, self.arrivals)

    @cached_property
    def slacks(self) -> list[list[float]]:
        """By device and index, how much later a step may start."""
        return slacks(self.plan.timeline, self.arrivals)

    @cached_property
    def path(self) -> list[tuple[int, Step, float, float]]:
        """The critical path: (device, step, start, end)."""
        return self.plan.timeline.critical_path()

    @cached_property
    def tight(self) -> list[Counter[str]]:
        """By device, the operations without slack by kind."""
        return [
            Counter(
                operation.kind
                for step, slip in zip(order, slips, strict=True)
                if slip == 0
                for operation in parts(step)
            )
            for order, slips in zip(self.plan.schedule.orders, self.slacks, strict=True)
        ]

    @cached_property
    def most_idle(self) -> list[int]:
        """The devices that idle most, warm-up and drain included: more than one where they tie."""
        totals = [sum(causes.values()) for causes in self.idle]
        rounding = 1e-9 * self.plan.timeline.makespan
        return [device for device, total in enumerate(totals) if total >= max(totals) - rounding]

    def waits_for(self, device: int) -> tuple[int, float] | None:
        """(device, time): the device that this one waits for most in the end; None when it waits for nothing."""
        return max(by_root(self.gaps[device], self.roots).items(), key=lambda wait: wait[1], default=None)

    def slack(self, gap: Gap) -> float:
        """How much longer a gap could last without harm; 0 in the drain, after which nothing comes."""
        return 0.0 if gap.delayed is None else self.slacks[gap.device][gap.delayed]

    def sentences(self) -> list[str]:
        """Who waits and for whom in the end, what the time is bound by, and what would help."""
        found = [self._waits(), self._shares(), self._path(), self._proof(), self._advice()]
        if self.plan.problem.objective == "span":
            found.append("The objective is span: warm-up and drain do not count in it.")
        return [sentence for sentence in found if sentence]

    def _amount(self, time: float) -> str:
        return amount(time, self.plan.problem.profile.time_unit)

    def _waits(self) -> str:
        """The device that waits most, the main cause, and whom it waits for in the end."""
        timeline, (device, *ties) = self.plan.timeline, self.most_idle
        total = sum(self.idle[device].values())
        if total <= 0:
            return "No device waits."
        cause = max(self.idle[device], key=self.idle[device].__getitem__)
        tied = ""
        if ties:
            everyone = len(ties) == len(self.idle) - 1 > 1
            named = "all others" if everyone else _devices(ties)
            tied = f" (as long as {named})"
        text = (
            f"Device {device} waits most: {self._amount(total)} of {self._amount(timeline.makespan)}, warm-up and "
            f"drain included{tied}. Most of it, {self._amount(self.idle[device][cause])}, is {cause}: {CAUSES[cause]}"
        )
        root = self.waits_for(device) if cause in ("dependency", "transfer") else None
        if root is not None:
            busy = f"which is busy {timeline.busy[root[0]] / timeline.makespan:.0%} of the time"
            who = f"device {root[0]}, {busy}" if root[0] != device else "its own earlier work to come back"
            text += f"; in the end it waits for {who}"
        judged = [gap for gap in self.gaps[device] if gap.cause == cause]
        costly = sum(gap.length for gap in judged if self.slack(gap) == 0)
        if costly == 0:
            return f"{text}. It costs nothing: the steps that it delays have slack."
        if costly < self.idle[device][cause] * (1 - 1e-9):
            text += f". Only {self._amount(costly)} of it delays steps without slack"
        return f"{text}. What would make it less: {remedy(cause, optimal=self.plan.gap == 0)}."

    def _shares(self) -> str:
        """All idle time by cause."""
        everything = {cause: sum(causes[cause] for causes in self.idle) for cause in CAUSES}
        whole = sum(everything.values())
        if whole <= 0:
            return ""
        shares = sorted(((time, cause) for cause, time in everything.items() if time > 0), reverse=True)
        text = ", ".join(f"{cause} {time / whole:.0%}" for time, cause in shares)
        return f"Idle time of all devices together, {self._amount(whole)}: {text}."

    def _path(self) -> str:
        """Through which devices the critical path goes, and how long it spends on what."""
        if not self.path or self.plan.value <= 0:
            return ""
        runs = [list(run) for _, run in groupby(self.path, key=lambda step: step[0])]
        longest = max(runs, key=lambda run: run[-1][3] - run[0][2])
        at, start, end = runs.index(longest), longest[0][2], longest[-1][3]
        if end - start < self.plan.value / 2:
            route = f"it changes its device {counted(len(runs) - 1, 'time')}"
        else:
            legs = [
                f"{self._amount(start - self.path[0][2])} through {_route(runs[:at])}" if at else "",
                f"device {longest[0][0]} without a pause for {self._amount(end - start)}",
                f"{self._amount(self.path[-1][3] - end)} through {_route(runs[at + 1 :])}" if runs[at + 1 :] else "",
            ]
            route = ", then ".join(filter(None, legs))
        spent: dict[str, list[float]] = defaultdict(list)
        for _, step, begun, ended in sorted(
            self.path, key=lambda entry: [KINDS.index(o.kind) for o in parts(entry[1])]
        ):
            spent["+".join(operation.kind for operation in parts(step))].append(ended - begun)
        moves = [second[2] - first[3] for first, second in pairwise(self.path) if first[0] != second[0]]
        times = [f"{len(each)} {kind} {self._amount(sum(each))}" for kind, each in spent.items()]
        times += [f"{counted(len(moves), 'transfer')} {self._amount(sum(moves))}"] if moves else []
        return f"Critical path: {route} ({', '.join(times)}). Without slack: {self._tight()}."

    def _tight(self) -> str:
        whole = sum(self.tight, Counter())
        holders = sorted(range(len(self.tight)), key=lambda device: -self.tight[device].total())[:MOST_LISTED]
        each = [f"device {device}: {counts(self.tight[device])}" for device in sorted(holders) if self.tight[device]]
        more = ["others fewer"] if len(self.tight) > MOST_LISTED else []
        return f"{counted(whole.total(), 'operation')} ({'; '.join(each + more)})"

    def _proof(self) -> str:
        """What the lower bound says."""
        certificate = self.plan.certificate
        if certificate.lower_bound <= 0:
            return ""
        if self.plan.gap == 0:
            return f"No order is faster, on this placement and under these caps: {certificate.reason}."
        saved = self.plan.value - certificate.lower_bound
        share = f"{self._amount(saved)} ({saved / self.plan.value:.1%})"
        return f"Another order could save at most {share}: {certificate.reason}."

    def _advice(self) -> str:
        """What would help: less work for the device that the critical path spends most on, or more memory."""
        if not self.path or self.plan.value <= 0:
            return ""
        spent: dict[int, float] = defaultdict(float)
        for device, _, begun, ended in self.path:
            spent[device] += ended - begun
        device, most = max(spent.items(), key=lambda entry: entry[1])
        share = most / self.plan.value
        busy = self.plan.timeline.busy
        fewer = " or fewer" if busy[device] > min(busy) * (1 + 1e-9) else ""
        if share >= 0.5:
            text = (
                f"What would help most: faster{fewer} layers on device {device}, which has {self._amount(most)} of "
                f"the critical path ({share:.0%})."
            )
        else:
            text = (
                f"No device has half of the critical path: faster layers help a little anywhere ({share:.0%} at most)."
            )
        held = [gap for found in self.gaps for gap in found if gap.cause == "memory"]
        tight = sorted({gap.device for gap in held if self.slack(gap) == 0})
        if tight:
            text += f" The cap holds back steps without slack on {_devices(tight)}."
            text += " A higher one may help there."
        elif held:
            text += " What the cap holds back has slack: in these orders it costs no time."
        return text


def amount(value: float, unit: str) -> str:
    """A quantity as people read it, with five significant digits and its unit."""
    text = f"{float(f'{value:.5g}'):.15g}"
    return f"{text} {unit}" if unit else text


def counts(found: Counter[str]) -> str:
    """Numbers of operations by kind."""
    return ", ".join(f"{found[kind]} {kind}" for kind in KINDS if found[kind]) or "none"


def listed(items: Iterable[object]) -> str:
    """Things as people list them, the middle of many left out."""
    texts = list(map(str, items))
    if len(texts) > MOST_LISTED:
        texts = [*texts[: MOST_LISTED - 2], "...", texts[-1]]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _devices(devices: Sequence[int]) -> str:
    return f"device{'s' if len(devices) > 1 else ''} {listed(devices)}"


def _route(runs: Sequence[list[tuple[int, Step, float, float]]]) -> str:
    """The devices of a part of the path, in the order of their first visit."""
    devices = list(dict.fromkeys(run[0][0] for run in runs))
    steps = {second - first for first, second in pairwise(devices)}
    if len(devices) > 2 and steps in ({1}, {-1}):
        return f"devices {devices[0]} to {devices[-1]}"
    return _devices(devices)
