"""The ILP: every schedule within given windows, as a mixed integer linear program in PuLP.

Start times are continuous; one binary per pair of tasks of one device whose order the windows leave open. Memory on a
device depends on its order alone, so the order binaries carry it, without a big constant.
"""

from __future__ import annotations

import math

import pulp

from .backend import Backend, Solution
from .tasks import Fusion
from .windows import Windows


class IlpSolver:
    """The ILP with a back end that solves it."""

    probing = 0.2

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def name(self) -> str:
        return self.backend.name

    def solve(self, windows: Windows, deadline: float) -> Solution:
        """The schedule of the least value within the windows that is found until `deadline` (of time.monotonic)."""
        ilp = Ilp(windows)
        answer = self.backend.solve(ilp.model, deadline)
        if answer.status == "infeasible":
            return Solution("infeasible")
        bound = 0 if answer.bound is None else math.ceil(answer.bound - 1e-6)
        if not answer.values:
            return Solution("stopped", bound=bound)
        return Solution("found", ilp.order(answer.values), ilp.fusions(answer.values), bound)


class Ilp:
    """The model of one set of windows: `model` minimises the value, in ticks, over all schedules they allow."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.tasks = windows, windows.tasks
        self.model = pulp.LpProblem("debubble", pulp.LpMinimize)
        self.starts = [
            pulp.LpVariable(f"s{task}", first, last)
            for task, (first, last) in enumerate(zip(windows.earliest, windows.latest, strict=True))
        ]
        self.value = pulp.LpVariable("value", 0, windows.target)
        self.pairs = {pair: pulp.LpVariable(f"y{pair[0]}_{pair[1]}", cat="Binary") for pair in windows.open_pairs()}
        self.fused = {
            fusion.backward: pulp.LpVariable(f"x{fusion.backward}", cat="Binary") for fusion in self.tasks.fusions
        }
        self._weights = {fusion.weight: fusion for fusion in self.tasks.fusions}
        self.model += self.value
        self._add_dependencies()
        self._add_fusions()
        self._add_value()
        self._add_disjunctions()
        self._add_cycles()
        self._add_loads()
        self._add_chains()
        self._add_memory()

    def order(self, values: dict[str, float]) -> list[int]:
        """All tasks in an order that agrees with a solution of the model, on every device.

        Solvers leave out binaries that no row needs, as between two tasks that take no time: either order will do.
        """
        return self.windows.order_by(lambda first, second: values.get(self.pairs[first, second].name, 0.0) > 0.5)

    def fusions(self, values: dict[str, float]) -> list[Fusion]:
        """The backwards that a solution fuses."""
        return [f for f in self.tasks.fusions if values.get(self.fused[f.backward].name, 0.0) > 0.5]

    def before(self, first: int, second: int) -> pulp.LpAffineExpression | pulp.LpVariable | int:
        """1 when `first` runs before `second` on their device, else 0."""
        if self.windows.decided(first, second):
            return self.windows.before[second] >> first & 1
        return self.pairs[first, second] if first < second else 1 - self.pairs[second, first]

    def _add_dependencies(self) -> None:
        """start_j >= start_i + lag for every arc (i, j, lag)."""
        for first, second, lag in self.tasks.arcs:
            self.model += self.starts[second] >= self.starts[first] + lag

    def _add_fusions(self) -> None:
        """Where x_b = 1, B and W are one: W starts at the end of B, and what needs the gradient waits for the whole:

        start_w <= start_b + d_b + M (1 - x_b);  start_j >= start_b + lag + (d_bw - d_b) x_b.
        """
        for fusion in self.tasks.fusions:
            b, w, fused = fusion.backward, fusion.weight, self.fused[fusion.backward]
            end = self.starts[b] + self.tasks.durations[b]
            slack = max(0, self.windows.latest[w] - self.windows.earliest[b] - self.tasks.durations[b])
            self.model += self.starts[w] <= end + slack * (1 - fused)
            for second, lag in self.tasks.gradient_arcs(b):
                self.model += self.starts[second] >= self.starts[b] + lag + fusion.rest * fused

    def _add_value(self) -> None:
        """makespan: value >= end_i; span: value >= end_i - begin_d and begin_d <= start_i, for tasks i of device d."""
        span = self.tasks.problem.objective == "span"
        for device, members in enumerate(self.tasks.on_device):
            begin: pulp.LpVariable | int = 0
            if span:
                begin = pulp.LpVariable(f"begin{device}", 0, min(self.windows.latest[task] for task in members))
                for task in members:
                    if not self.windows.before[task]:
                        self.model += begin <= self.starts[task]
            for task in members:
                if not self.windows.after[task]:
                    self.model += self.value >= self.starts[task] + self._duration(task) - begin

    def _add_disjunctions(self) -> None:
        """One task at a time: start_j >= start_i + d_i - M (1 - y_ij), M the most that j may precede the end of i.

        Pairs whose order is known need no binary, and no row where a third task stands between them.
        """
        for (first, second), choice in self.pairs.items():
            self._separate(first, second, 1 - choice)
            self._separate(second, first, choice)
        for first, second in self.windows.neighbours():
            self.model += self.starts[second] >= self.starts[first] + self._duration(first)

    def _separate(self, first: int, second: int, off: pulp.LpAffineExpression | pulp.LpVariable) -> None:
        """`second` starts after the end of `first` unless `off` is 1."""
        reach = self.windows.latest[first] + self._longest(first) - self.windows.earliest[second]
        self.model += self.starts[second] >= self.starts[first] + self._duration(first) - max(0, reach) * off

    def _add_cycles(self) -> None:
        """Tasks that take no time cannot each run before the next in a circle: y_ij + y_jk + y_ki <= 2."""
        for first, second, third in self.windows.open_cycles():
            self.model += self.before(first, second) + self.before(second, third) + self.before(third, first) <= 2

    def _add_loads(self) -> None:
        """What runs before a task takes its time, and so does what runs after it:

        start_i >= t + sum of d_k y_ki over the tasks k that start at t or later, for t the first start of the device
        and t the first start of i; and start_i + d_i + sum of d_k y_ik over all k of the device <= the last end.
        """
        durations, windows = self.tasks.durations, self.windows
        for members in self.tasks.on_device:
            begin = min(windows.earliest[task] for task in members)
            end = max(windows.latest[task] + durations[task] for task in members)
            for task in members:
                others = [other for other in members if other != task]
                for first in sorted({begin, windows.earliest[task]}):
                    load = pulp.lpSum(
                        durations[other] * self.before(other, task)
                        for other in others
                        if windows.earliest[other] >= first
                    )
                    self.model += self.starts[task] >= first + load
                for last in sorted({end, windows.latest[task] + durations[task]}):
                    load = pulp.lpSum(
                        durations[other] * self.before(task, other)
                        for other in others
                        if windows.latest[other] + durations[other] <= last
                    )
                    self.model += self.starts[task] + durations[task] + load <= last

    def _add_chains(self) -> None:
        """Where i runs before j in any case, what runs before i runs before j: y_ki <= y_kj for every other task k."""
        windows = self.windows
        for first, second in windows.neighbours():
            for other in self.tasks.on_device[self.tasks.devices[first]]:
                if other in (first, second) or windows.decided(other, first) or windows.decided(other, second):
                    continue
                self.model += self.before(other, first) <= self.before(other, second)

    def _add_memory(self) -> None:
        """Where task k raises the memory: rise_k + sum over the other tasks i of change_i y_ik <= room.

        A fused backward has a rise of its own.
        """
        tasks = self.tasks
        fused = {fusion.backward: fusion.rise for fusion in tasks.fusions}
        for device, room in enumerate(tasks.rooms):
            if room is None:
                continue
            members = tasks.on_device[device]
            for task in members:
                rise = tasks.rises[task]
                if rise <= 0:
                    continue
                held = pulp.lpSum(tasks.changes[i] * self.before(i, task) for i in members if i != task)
                own = rise + (fused[task] - rise) * self.fused[task] if task in fused else rise
                self.model += held + own <= room

    def _duration(self, task: int) -> pulp.LpAffineExpression | int:
        """The duration of a task; that of a W depends on its being part of a fused backward."""
        fusion = self._weights.get(task)
        if fusion is None or fusion.split == fusion.rest:
            return self.tasks.durations[task]
        return fusion.split + (fusion.rest - fusion.split) * self.fused[fusion.backward]

    def _longest(self, task: int) -> int:
        """The duration of a task, the longer one where it has two."""
        fusion = self._weights.get(task)
        return self.tasks.durations[task] if fusion is None else max(fusion.split, fusion.rest)
