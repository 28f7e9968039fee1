"""Processes on this machine that end with the one that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence


def start(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Run a module in a process of its own, with one thread unless OMP_NUM_THREADS says otherwise.

    Its standard output goes to our standard error: results alone belong on ours.
    """
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env=environment,
        stdin=subprocess.PIPE,  # its end tells the process that we are gone
        stdout=sys.__stderr__,
        start_new_session=True,  # Ctrl-C is for us; we end the processes
    )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill what still runs, with all it started."""
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def end_with_the_parent() -> None:
    """From now on, end this process when the one that started it is gone, in whatever way."""
    threading.Thread(target=_end_at_end_of_input, daemon=True).start()


def _end_at_end_of_input() -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when this process ends first
        pass
    os._exit(1)
