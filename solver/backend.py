"""Back ends that solve an integer linear program: CBC and HiGHS behind one small face.

A status word proves nothing here: an answer says only what the solver's log supports. PuLP, in particular, reports
CBC's incumbent at a time limit as optimal, and leaves CBC's best bound in the log.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pulp

from ..compiler.errors import DebubbleError, InputError
from .tasks import Fusion
from .windows import Windows

NAMES = ("cbc", "highs", "cp-sat")
GRACE = 1.0
"""Seconds a child process may overrun its own time limit before it is killed, at most; less when time is short."""


class BackendMissingError(DebubbleError):
    """A solver is not installed."""

    code = "backend-missing"


@dataclass(frozen=True)
class Answer:
    """What a solver found out about a minimisation.

    `status` is "optimal", "infeasible" or "stopped"; `values` holds the best solution found by variable name (empty:
    none), and no solution has an objective below `bound` (None: unknown).
    """

    status: str
    values: dict[str, float] = field(default_factory=dict)
    bound: float | None = None


@dataclass(frozen=True)
class Solution:
    """What a solver found out about the schedules within given windows.

    `status` is "found", "infeasible" or "stopped". `order` lists all tasks so that those of each device are in order,
    `fusions` the backwards to fuse; no schedule within the windows has a value below `bound` ticks.
    """

    status: str
    order: list[int] = field(default_factory=list)
    fusions: list[Fusion] = field(default_factory=list)
    bound: int = 0


class Solver(Protocol):
    """What finds schedules within windows: the ILP with one of its back ends, or CP-SAT."""

    probing: float
    """The share of its time that is better spent on probing the windows first."""

    @property
    def name(self) -> str:
        """Name and version."""

    def solve(self, windows: Windows, deadline: float) -> Solution:
        """Look for a schedule until `deadline` (of time.monotonic)."""


class Backend(Protocol):
    """A solver of integer linear programs."""

    @property
    def name(self) -> str:
        """The solver's name and version."""

    def solve(self, model: pulp.LpProblem, deadline: float) -> Answer:
        """Minimise a model until `deadline` (of time.monotonic)."""


class Cbc:
    """The CBC binary that comes with PuLP, or that is on the path, as a child process.

    Raises BackendMissingError when there is none, or it cannot be executed.
    """

    def __init__(self) -> None:
        bundled = getattr(pulp.apis.coin_api, "pulp_cbc_path", "")
        path = bundled if os.access(bundled, os.X_OK) else shutil.which("cbc")
        if not path:
            raise BackendMissingError("the CBC solver is missing: PuLP brought no binary, and none is on the path")
        self.path = path
        self.version = "unknown version"

    @property
    def name(self) -> str:
        return f"CBC {self.version}"

    def solve(self, model: pulp.LpProblem, deadline: float) -> Answer:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return Answer("stopped")
        with tempfile.TemporaryDirectory(prefix="debubble-") as folder:
            _, renamed, _, _ = model.writeMPS(os.path.join(folder, "model.mps"), rename=True)
            seconds = max(0.1, deadline - time.monotonic())
            limit = seconds - min(GRACE, 0.05 * seconds)
            log, elapsed = self._run(folder, limit, seconds)
            match = re.search(r"^Version:\s*(\S+)", log, re.MULTILINE)
            if match:
                self.version = match[1]
            solution = Path(folder, "solution.txt")
            lines = solution.read_text().splitlines() if solution.exists() else []
        originals = {short: name for name, short in renamed.items()}
        return self._answer(log, lines, originals, in_time=elapsed < limit)

    def _run(self, folder: str, limit: float, seconds: float) -> tuple[str, float]:
        """Run the binary in a folder; its log, and the seconds it took. It is killed when `seconds` have passed."""
        command = [self.path, "model.mps", "-sec", f"{limit:.2f}", "-timeMode", "elapsed"]
        command += ["-branch", "-printingOptions", "all", "-solution", "solution.txt"]
        begin = time.monotonic()
        try:
            with open(os.path.join(folder, "log.txt"), "w+") as log:
                with subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as child:
                    try:
                        child.wait(seconds)
                    except subprocess.TimeoutExpired:
                        pass
                    finally:
                        child.kill()
                elapsed = time.monotonic() - begin
                log.seek(0)
                return log.read(), elapsed
        except OSError as error:
            raise BackendMissingError(f"the CBC solver cannot be executed: {error}") from error

    @staticmethod
    def _answer(log: str, lines: list[str], originals: dict[str, str], *, in_time: bool) -> Answer:
        """Read CBC's log and solution file. What ended by the clock is neither optimal nor infeasible."""
        head = lines[0].lower() if lines else ""
        stopped = not in_time or "stopped" in head or "time limit" in log
        if "infeasible" in head and not stopped and "infeasible" in log.lower():
            return Answer("infeasible")
        values: dict[str, float] = {}
        if "objective value" in head and "infeasible" not in head and "no integer solution" not in head:
            for line in lines[1:]:
                fields = line.replace("**", "").split()
                if len(fields) >= 3 and fields[1] in originals:
                    values[originals[fields[1]]] = float(fields[2])
        match = re.search(r"^Objective value:\s*(\S+)", log, re.MULTILINE)
        if head.startswith("optimal") and not stopped and match:
            return Answer("optimal", values, float(match[1]))
        bounds = re.findall(
            r"(?:^Lower bound:|best possible|Continuous objective value is)\s*(-?[\d.]+(?:e[+-]?\d+)?)",
            log,
            re.MULTILINE,
        )
        return Answer("stopped", values, max(map(float, bounds), default=None))


class Highs:
    """HiGHS in this process, through PuLP. Raises BackendMissingError when highspy is not installed."""

    def __init__(self) -> None:
        if importlib.util.find_spec("highspy") is None:
            raise BackendMissingError("HiGHS is not installed: pip install 'debubble[highs]'")

    @property
    def name(self) -> str:
        return f"HiGHS {importlib.metadata.version('highspy')}"

    def solve(self, model: pulp.LpProblem, deadline: float) -> Answer:
        import highspy

        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return Answer("stopped")
        with _muted():
            model.solve(pulp.HiGHS(msg=False, timeLimit=seconds, gapRel=0.0))
        solver = model.solverModel
        status, info = solver.getModelStatus(), solver.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Answer("infeasible")
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = {variable.name: variable.varValue for variable in model.variables()} if found else {}
        done = status == highspy.HighsModelStatus.kOptimal and found
        bound = info.mip_dual_bound if math.isfinite(info.mip_dual_bound) else None
        return Answer("optimal" if done else "stopped", values, bound)


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Nothing reaches the standard output: HiGHS greets there, and results of debubble are read from it."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def ilp_backend(name: str) -> Backend:
    """The back end called "cbc" or "highs". Raises BackendMissingError when it is not installed."""
    if name == "cbc":
        return Cbc()
    if name == "highs":
        return Highs()
    raise InputError(f"unknown back end {name!r}", hint=f"one of {', '.join(NAMES)}")
