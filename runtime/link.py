"""The link between two ranks of this machine: latency and bandwidth of messages, as the runtime sends them.

Its two processes are started as `python -m debubble.runtime.link DIRECTORY RANK BYTES`.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import torch

from ..compiler.errors import RunError
from .group import process_group
from .processes import end_with_the_parent, start, stop
from .ranks import Rank
from .transport import Transport

SMALL = 8
LARGE = 2**20
"""Bytes of the messages that latency and, at least, bandwidth are measured with."""

REPEAT = 20
LIMIT = 120.0
"""Seconds after which the measurement is given up."""


def measure_link(size: int) -> dict[str, float]:
    """`latency` in ms and `bandwidth` in bytes per ms, for messages of `size` bytes. Raises RunError when it fails."""
    with tempfile.TemporaryDirectory(prefix="debubble-") as directory:
        words = (directory, str(max(size, LARGE)))
        processes = [start("debubble.runtime.link", *words, str(rank)) for rank in range(2)]
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                for process in processes:
                    process.wait(LIMIT)
        finally:
            stop(processes)
        result = Path(directory) / "link.json"
        if not result.exists():
            raise RunError("the link between two processes could not be measured")
        return msgspec.json.decode(result.read_bytes(), type=dict[str, float])


def _transfer(transport: Transport, tensor: torch.Tensor) -> float:
    """Milliseconds of one message, as half of a round trip."""
    times = []
    for _ in range(REPEAT):
        start_time = time.perf_counter()
        for sender in range(2):
            if transport.rank == sender:
                transport.isend(tensor, 1 - sender).wait()
            else:
                transport.irecv(tensor, sender).wait()
        if tensor.device.type == "cuda":
            torch.cuda.synchronize(tensor.device)
        times.append((time.perf_counter() - start_time) / 2)
    return 1e3 * statistics.median(times)


def main(directory: str, size: int, rank: int) -> int:
    """Exchange messages with the other process; rank 0 leaves the result in the directory."""
    end_with_the_parent()
    with process_group(Rank(rank, 2, rank, 2, f"file://{directory}/store"), timedelta(seconds=LIMIT)) as device:
        transport = Transport(None, [(0, 1), (1, 0)], device)
        latency = _transfer(transport, torch.zeros(SMALL, dtype=torch.uint8, device=device))
        whole = _transfer(transport, torch.zeros(size, dtype=torch.uint8, device=device))
    if rank == 0:
        result = {"latency": latency, "bandwidth": size / max(whole - latency, 1e-6)}
        (Path(directory) / "link.json").write_bytes(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
