"""Launching: `run` starts the processes of a job on this machine, or joins the job that torchrun or SLURM started."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..compiler.errors import InputError, RunError
from ..compiler.numbers import check_count
from ..compiler.plan import Plan
from .job import Failure, Job, RunResult, model_file
from .processes import start, stop
from .progress import OUTSIDE, create, describe, read, waits
from .ranks import rank_from_environment

GRACE = 2.0
"""Seconds that the other processes get to report, after one has failed, before they are killed."""

START = 60.0
"""Seconds on top of the timeout until every rank has begun its first step: imports and building the model take long."""

POLL = 0.05
"""Seconds between two looks at the processes."""


def run(
    plan: Plan,
    model: str | None = None,
    *,
    steps: int = 1,
    check: bool = False,
    seed: int = 0,
    timeout: float = 300.0,
    emulate: bool = False,
    trace: bool = False,
) -> RunResult | None:
    """Train the workload that `model` (FILE.py:FUNCTION) names for some steps of the plan, or emulate its compute.

    Starts one process per device on this machine, on GPUs where there are enough, else on CPUs. In the environment of
    torchrun or of a SLURM step it runs as the rank that it is given there, and the result is None on ranks other
    than 0. With `check`, losses and gradients are compared with a single-process run; with `trace`, the last step is
    recorded. With `emulate`, processes wait for as long as the profile says that an operation or a transfer takes (one
    unit of time is a unit whose name is known, else what makes the shortest operation last 20 ms), and exchange
    messages of the profile's sizes; no model is needed. When a rank fails, or none gets
    on for `timeout` seconds, every process is ended.
    Raises InputError for what cannot be run, RunError that names rank and instruction when an execution failed.
    """
    check_count("steps", steps)
    if not timeout > 0:
        raise InputError(f"the timeout must be a positive number of seconds, not {timeout:g}", code="bad-number")
    if emulate and check:
        raise InputError("an emulation computes nothing that could be checked")
    if not emulate and model is None:
        raise InputError("a run needs a model", hint="FILE.py:FUNCTION; without one a plan can be emulated")
    if model is not None:
        model_file(model)  # the rest of what can be wrong with it only the processes find
    rank = rank_from_environment()
    with tempfile.TemporaryDirectory(prefix="debubble-") as directory:
        place = Path(directory)
        plan.save(place / "plan.json")
        job = Job(
            plan=str(place / "plan.json"),
            model=None if emulate else model,
            steps=steps,
            check=check,
            seed=seed,
            timeout=timeout,
            trace=trace,
        )
        if rank is not None:
            from .worker import train  # imports torch, which local processes do on their own

            return train(job, rank)
        (place / "job.json").write_bytes(msgspec.json.encode(job))
        return _run_here(place, plan, timeout)


def _run_here(place: Path, plan: Plan, timeout: float) -> RunResult:
    processes: list[subprocess.Popen[bytes]] = []
    for device in range(plan.problem.devices):
        create(place / f"progress-{device}")
    try:
        processes.extend(
            start("debubble.runtime.worker", str(place), str(device)) for device in range(plan.problem.devices)
        )
        _watch(place, plan, processes, timeout)
        codes = [process.poll() for process in processes]
    finally:
        stop(processes)
    if any(codes):
        _raise_failure(place, plan, codes)
    return msgspec.json.decode((place / "result.json").read_bytes(), type=RunResult)


def _watch(place: Path, plan: Plan, processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> None:
    """Return when all processes have ended, or GRACE seconds after one has failed.

    Raises RunError when no rank gets on for `timeout` seconds.
    """
    failed_at = None
    seen: list[tuple[int, int]] = []
    seen_at = time.monotonic()
    while True:
        codes = [process.poll() for process in processes]
        now = time.monotonic()
        if all(code is not None for code in codes):
            return
        if any(codes):
            failed_at = now if failed_at is None else failed_at
            if now - failed_at > GRACE:
                return
        places = [read(place / f"progress-{rank}") for rank in range(len(processes))]
        if places != seen:
            seen, seen_at = places, now
        elif now - seen_at > timeout + (START if (0, OUTSIDE) in places else 0):
            raise RunError(f"no rank got on for {timeout:g} s: {_stuck(plan, places)}")
        time.sleep(POLL)


def _stuck(plan: Plan, places: Sequence[tuple[int, int]]) -> str:
    """Where the ranks are, those first that do not wait for another one."""
    ranks = sorted(range(len(places)), key=lambda rank: waits(plan, rank, places[rank][1]))
    return "; ".join(describe(plan, rank, *places[rank]) for rank in ranks)


def _raise_failure(place: Path, plan: Plan, codes: Sequence[int | None]) -> None:
    """Raise what ended the job: the first cause that a rank knew of, or the rank that died without a word."""
    failures = {}
    for rank in range(len(codes)):
        report = place / f"failure-{rank}.json"
        if report.exists():
            failures[rank] = msgspec.json.decode(report.read_bytes(), type=Failure)
    for failure in failures.values():
        if not failure.consequence:
            raise InputError(failure.message) if failure.bad_input else RunError(failure.message)
    for rank, code in enumerate(codes):
        if code and rank not in failures:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise RunError(f"{describe(plan, rank, *read(place / f'progress-{rank}'))}: the process {how}")
    raise RunError(next(iter(failures.values())).message)
