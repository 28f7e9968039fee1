"""Scale: whole compiles from the command line: searched, bounded, verified, lowered and saved.

    python benchmarks/scale.py [--save]

Costs 10/11/8, transfer 1, memory 2, -1, -1, linear, at the memory of 1F1B and at twice that. Seconds and peak memory
are those of the whole process. The reference is the time in which Python imports networkx on the same machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from common import Table, arguments, save

SIZES = [(8, 64), (16, 128), (32, 256), (32, 512), (64, 1024)]


def measured(command: list[str]) -> tuple[str, float, float]:
    """Standard output, wall seconds and peak memory in GB of one process."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"error: {' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    return output, time.monotonic() - start, usage.ru_maxrss / 1e6


def main() -> None:
    chosen = arguments(__doc__ or "", "scale").parse_args()
    columns = ["p", "m", "operations", "cap / 2p", "value", "bound", "gap", "s", "s / import", "GB"]
    table = Table("Compiling large problems, 25 s limit", columns)
    unit = min(measured([sys.executable, "-c", "import networkx"])[1] for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        for p, m in SIZES:
            for times in (1, 2):
                command = [sys.executable, "-m", "debubble", "compile", "--devices", str(p), "--microbatches", str(m)]
                command += ["--forward", "10", "--backward-input", "11", "--backward-weight", "8", "--comm", "1"]
                command += ["--memory", "2,-1,-1", "--memory-cap", str(2 * p * times), "--time-limit", "25", "--json"]
                output, seconds, memory = measured([*command, "-o", f"{folder}/plan.json"])
                plan = json.loads(output)
                value, bound, gap = plan["value"], plan["lower_bound"], f"{plan['gap']:.2%}"
                ratio = round(seconds / unit)
                table.row(p, m, 3 * p * m, times, value, bound, gap, round(seconds, 1), ratio, round(memory, 2))
    if chosen.save:
        save("scale", [table])


if __name__ == "__main__":
    main()
