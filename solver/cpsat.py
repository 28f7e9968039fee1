"""CP-SAT: the schedules that given windows allow, as a constraint program for OR-tools.

The choices are those of the ILP: one literal per pair of tasks whose order is open. The memory goes by these literals,
which decides tight caps far faster than cumulative resources do.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from typing import TYPE_CHECKING, Any

from .backend import BackendMissingError, Solution
from .tasks import Fusion
from .windows import Windows

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

WORKERS = 2
"""Threads that search at the same time."""


class CpSat:
    """OR-tools' CP-SAT in this process. Raises BackendMissingError when ortools is not installed."""

    def __init__(self) -> None:
        if importlib.util.find_spec("ortools") is None:
            raise BackendMissingError("CP-SAT is not installed: pip install 'debubble[cp-sat]'")

    probing = 0.0

    @property
    def name(self) -> str:
        return f"OR-tools CP-SAT {importlib.metadata.version('ortools')}"

    def solve(self, windows: Windows, deadline: float) -> Solution:
        """Look for any schedule within the windows until `deadline` (of time.monotonic)."""
        from ortools.sat.python import cp_model

        program = Program(windows)
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return Solution("stopped")
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = WORKERS
        solver.parameters.random_seed = 0
        status = solver.solve(program.model)
        if status == cp_model.INFEASIBLE:
            return Solution("infeasible")
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Solution("found", program.order(solver), program.fusions(solver))
        return Solution("stopped")


class Program:
    """The constraint program of one set of windows."""

    def __init__(self, windows: Windows) -> None:
        from ortools.sat.python import cp_model

        self.windows, self.tasks = windows, windows.tasks
        self.model = cp_model.CpModel()
        self.starts = [
            self.model.new_int_var(first, last, f"s{task}")
            for task, (first, last) in enumerate(zip(windows.earliest, windows.latest, strict=True))
        ]
        self.pairs = {pair: self.model.new_bool_var(f"y{pair[0]}_{pair[1]}") for pair in windows.open_pairs()}
        self.fused = {f.backward: self.model.new_bool_var(f"x{f.backward}") for f in self.tasks.fusions}
        self.lengths: list[Any] = list(self.tasks.durations)
        for fusion in self.tasks.fusions:
            self.lengths[fusion.weight] = fusion.split + (fusion.rest - fusion.split) * self.fused[fusion.backward]
        self._add_dependencies()
        self._add_fusions()
        self._add_extent()
        self._add_disjunctions()
        self._add_cycles()
        self._add_memory()

    def order(self, solver: cp_model.CpSolver) -> list[int]:
        """All tasks in an order that agrees with the solution, on every device."""
        chosen = {pair: solver.boolean_value(literal) for pair, literal in self.pairs.items()}
        return self.windows.order_by(lambda first, second: chosen[first, second])

    def fusions(self, solver: cp_model.CpSolver) -> list[Fusion]:
        """The backwards that the solution fuses."""
        return [fusion for fusion in self.tasks.fusions if solver.boolean_value(self.fused[fusion.backward])]

    def before(self, first: int, second: int) -> cp_model.LinearExpr | int:
        """1 when `first` runs before `second` on their device, else 0."""
        if self.windows.decided(first, second):
            return self.windows.before[second] >> first & 1
        return self.pairs[first, second] if first < second else self.pairs[second, first].negated()

    def _add_dependencies(self) -> None:
        """start_j >= start_i + lag for every arc (i, j, lag)."""
        for first, second, lag in self.tasks.arcs:
            self.model.add(self.starts[second] >= self.starts[first] + lag)

    def _add_fusions(self) -> None:
        """A fused W starts at the end of its B, and what needs the gradient of that B waits for the end of both."""
        for fusion in self.tasks.fusions:
            b, w, fused = fusion.backward, fusion.weight, self.fused[fusion.backward]
            self.model.add(self.starts[w] == self.starts[b] + self.lengths[b]).only_enforce_if(fused)
            for second, lag in self.tasks.gradient_arcs(b):
                self.model.add(self.starts[second] >= self.starts[b] + lag + fusion.rest * fused)

    def _add_extent(self) -> None:
        """The value is at most the target: each device ends at most so long after 0 (makespan) or its start (span)."""
        span = self.tasks.problem.objective == "span"
        for members in self.tasks.on_device:
            begin: cp_model.LinearExprT = 0
            if span:
                begin = self.model.new_int_var(0, min(self.windows.latest[task] for task in members), "begin")
                for task in members:
                    self.model.add(begin <= self.starts[task])
            for task in members:
                self.model.add(self.starts[task] + self.lengths[task] <= begin + self.windows.target)

    def _add_disjunctions(self) -> None:
        """One task at a time on each device, in the order that the literals say."""
        for task_pair, literal in self.pairs.items():
            for (first, second), enforced in ((task_pair, literal), (task_pair[::-1], literal.negated())):
                end = self.starts[first] + self.lengths[first]
                self.model.add(self.starts[second] >= end).only_enforce_if(enforced)
        for first, second in self.windows.neighbours():
            self.model.add(self.starts[second] >= self.starts[first] + self.lengths[first])
        for members in self.tasks.on_device:
            intervals = [
                self.model.new_fixed_size_interval_var(self.starts[task], self.tasks.durations[task], f"i{task}")
                for task in members
            ]
            self.model.add_no_overlap(intervals)

    def _add_cycles(self) -> None:
        """Tasks that take no time cannot each run before the next in a circle: y_ij + y_jk + y_ki <= 2."""
        for first, second, third in self.windows.open_cycles():
            circle = self.before(first, second) + self.before(second, third) + self.before(third, first)
            self.model.add(circle <= 2)

    def _add_memory(self) -> None:
        """Where task k raises the memory: rise_k + sum over the other tasks i of change_i y_ik <= room."""
        changes, rises = self.tasks.changes, self.tasks.rises
        fused = {fusion.backward: fusion.rise for fusion in self.tasks.fusions}
        for device, room in enumerate(self.tasks.rooms):
            members = self.tasks.on_device[device]
            for task in members:
                rise = rises[task]
                if room is None or rise <= 0:
                    continue
                held = sum(changes[i] * self.before(i, task) for i in members if i != task)
                own = rise + (fused[task] - rise) * self.fused[task] if task in fused else rise
                self.model.add(held + own <= room)
