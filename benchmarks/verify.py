"""How long verifying a schedule of a million operations takes, and how much memory; and how it grows.

    python benchmarks/verify.py [OPERATIONS ...] [--save]

Writes a ZB-H1 schedule on 16 devices in the text form, as torch CSV, without and with communication, and as a plan,
verifies the files in processes of their own, and prints processor seconds and peak memory. Where torch is installed,
its own checks of the same schedule (that no operation is missing, and the simulation of its communication) run beside.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import common

DEVICES = 16

WRITE = """
import gc, sys
from debubble.compiler import bound, placement
from debubble.compiler.certificate import Certificate
from debubble.compiler.interchange import communication, text, torch_csv
from debubble.compiler.named import named_schedule
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Profile

devices, microbatches, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
profile = Profile.uniform(stages=devices, forward=1, backward_input=1, backward_weight=1)
problem = Problem(profile, placement.linear(devices), microbatches)
schedule = named_schedule("zb-h1", problem)
gc.disable()
witness = {"device": 0}
work = Certificate(lower_bound=bound.work(problem, 0), name="work", proof="checked", witness=witness)
plan = Plan.build(problem, schedule, work)
plan.save(f"{folder}/plan.json")
open(f"{folder}/orders.txt", "w").write(text.write(schedule, problem))
open(f"{folder}/compute.csv", "w").write(torch_csv.write(schedule))
open(f"{folder}/communication.csv", "w").write(communication.write(plan.streams))
"""

VERIFY = """
import sys
from debubble.compiler.interchange import verify_file

judgement = verify_file(sys.argv[1])
assert judgement.valid, judgement
print("valid, makespan", judgement.as_json()["makespan"])
"""

TORCH = """
import csv, sys
from torch.distributed.pipelining import schedules

devices, microbatches = int(sys.argv[2]), int(sys.argv[3])
rows = {r: [schedules._Action.from_str(c) for c in row] for r, row in enumerate(csv.reader(open(sys.argv[1])))}
if sys.argv[1].endswith("compute.csv"):
    schedules._validate_schedule(rows, devices, devices, microbatches)
else:
    rows = {r: [a for a in row if a.computation_type != schedules.REDUCE_GRAD] for r, row in rows.items()}
    schedules._simulate_comms_compute(rows, lambda stage: stage, devices)
"""


def measured(code: str, *arguments: object, limit: float = 600) -> tuple[float, float, str]:
    """Processor seconds, MiB at the peak, and the last line or the error of a process of its own."""
    ending = "\nimport resource, time\nuse = resource.getrusage(resource.RUSAGE_SELF)\n"
    ending += "print('\\nUSED', use.ru_utime + use.ru_stime, use.ru_maxrss)"
    command = [sys.executable, "-c", code + ending, *map(str, arguments)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return limit, 0.0, f"stopped after {limit:g} s"
    lines = [line for line in run.stdout.splitlines() if line]
    if run.returncode:
        return 0.0, 0.0, f"failed: {run.stderr.strip().splitlines()[-1][:100]}"
    _, seconds, memory = lines[-1].split()
    return float(seconds), int(memory) / 1024, lines[-2] if len(lines) > 1 else "accepted"


def main() -> None:
    parser = common.arguments(__doc__, "verify")
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000, 1_000_000], metavar="OPERATIONS")
    options = parser.parse_args()
    table = common.Table("Verification", ("operations", "file", "tool", "CPU seconds", "MiB", "result"))
    for size in options.sizes:
        microbatches = -(-size // (3 * DEVICES))
        with tempfile.TemporaryDirectory() as folder:
            measured(WRITE, DEVICES, microbatches, folder)
            for name in ("orders.txt", "compute.csv", "communication.csv", "plan.json"):
                path = Path(folder) / name
                tools = [("debubble", VERIFY, 600.0), ("torch", TORCH, 60.0)]
                for tool, code, limit in tools if name.endswith(".csv") else tools[:1]:
                    seconds, memory, note = measured(code, path, DEVICES, microbatches, limit=limit)
                    table.row(size, name, tool, f"{seconds:.1f}", f"{memory:.0f}", note)
    if options.save:
        common.save("verify", [table])


if __name__ == "__main__":
    main()
