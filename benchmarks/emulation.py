"""Emulated steps against predicted makespans: eight processes, timed waits in place of compute.

    python benchmarks/emulation.py [--steps 3] [--save]

For five schedules of eight devices, operations of 20 ms and more, and transfers of 2 ms, it prints the predicted step,
the median of the emulated ones, and what share of the devices' time the runtime itself took.
"""

from __future__ import annotations

import statistics

from common import Table, arguments, save, uniform

from debubble.compiler.certificate import Certificate
from debubble.compiler.named import PLACEMENTS, named_schedule
from debubble.compiler.plan import Plan
from debubble.runtime import run

DEVICES, MICROBATCHES = 8, 16
COSTS, COMM = (25.0, 27.5, 20.0), 2.0
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")


def main() -> None:
    parser = arguments(__doc__ or "", "emulation")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    table = Table(
        "Emulated steps, 8 devices, 16 micro-batches", ["schedule", "planned s", "emulated s", "ratio", "runtime"]
    )
    for name in SCHEDULES:
        place = PLACEMENTS.get(name, "linear")
        backward = "split" if name.startswith("zb") else "fused"
        problem = uniform(place, DEVICES, MICROBATCHES, COSTS, comm=COMM, backward=backward)
        schedule = named_schedule(name, problem)
        plan = Plan.build(problem, schedule, Certificate(lower_bound=0.0, name="none", proof="solver"))
        result = run(plan, emulate=True, steps=options.steps, trace=True)
        assert result is not None
        assert result.unit_seconds is not None
        assert result.trace is not None
        planned, emulated = plan.timeline.makespan * result.unit_seconds, statistics.median(result.step_seconds)
        overhead = sum(idle.overhead for idle in result.trace.idle(plan)) / (DEVICES * result.step_seconds[-1])
        table.row(name, f"{planned:.3f}", f"{emulated:.3f}", f"{emulated / planned:.4f}", f"{overhead:.2%}")
    if options.save:
        save("emulation", [table])


if __name__ == "__main__":
    main()
