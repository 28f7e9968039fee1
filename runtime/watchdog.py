"""The watchdog: ends this process when its rank stays at one instruction for too long.

It is for jobs whose ranks nobody watches from outside, as those of torchrun and SLURM. An exception could not leave the
call that hangs, so the process is ended: torchrun then ends the others, and where nobody does, their transfers break
or their own watchdogs bite.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from ..compiler.plan import Plan
from .progress import OUTSIDE, Progress, describe, waits

PATIENCE = 5.0
"""Seconds more for a rank that waits for another one: the one that hangs should speak first."""

POLL = 0.25
"""Seconds between two looks at the progress."""


class Watchdog:
    """Watches from a thread of its own, from now on until `stop`."""

    def __init__(self, plan: Plan, rank: int, progress: Progress, timeout: float) -> None:
        self._plan, self._rank, self._progress, self._timeout = plan, rank, progress, timeout
        self.executions = 0
        """Counted up by the pipeline: the same place in two executions is not the same place."""
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="debubble watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        seen, since = (0, 0, OUTSIDE), time.monotonic()
        while not self._stopped.wait(POLL):
            place = (self.executions, self._progress[0], self._progress[1])
            now = time.monotonic()
            if place != seen or place[2] == OUTSIDE:
                seen, since = place, now
            elif now - since > self._timeout + (PATIENCE if waits(self._plan, self._rank, place[2]) else 0):
                where = describe(self._plan, self._rank, place[1], place[2])
                sys.stderr.write(f"error: {where}: did not get on for {now - since:.0f} s\n")
                sys.stderr.flush()
                os._exit(1)
