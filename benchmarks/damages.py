"""Random damages to valid schedules: verification has to reject all that change what an independent execution does.

    python benchmarks/damages.py [--save]

Damages come at three levels: the orders of a schedule, the instruction streams of a plan, and torch's CSV with
communication. The run goes on until there are `--count` of them, `--least` of every kind at every level, and 1,000
reorders that change nothing. It fails when a kind stays below that, when a damage that changes the outcome is accepted,
or when a reorder that changes nothing is rejected.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import common
import damage

HARMLESS = 1000


def main() -> int:
    parser = common.arguments(__doc__, "damages")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--least", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made: Counter[tuple[str, str]] = Counter()
    changed: Counter[tuple[str, str]] = Counter()
    harmless = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        levels = [damage.Orders(), damage.Streams(), damage.Torch(Path(folder))]
        kinds = [(level.name, kind) for level in levels for kind in damage.damages(level)]
        for verdict in damage.trials(random.Random(options.seed), levels):
            made[verdict.level, verdict.kind] += 1
            changed[verdict.level, verdict.kind] += verdict.changed
            harmless += verdict.kind in damage.REORDERS and not verdict.changed
            if verdict.wrong:
                wrong += 1
                print("WRONG", verdict.level, verdict.kind, "changed" if verdict.changed else "harmless")
                print("\n".join("  " + "  ".join(row) for row in verdict.rows))
            enough = harmless >= HARMLESS and all(made[kind] >= options.least for kind in kinds)
            if made.total() >= (options.count if enough else 20 * options.count):
                break
    table = common.Table("Damages", ("level", "damage", "made", "changed the outcome", "changed nothing"))
    for kind in kinds:
        table.row(*kind, made[kind], changed[kind], made[kind] - changed[kind])
    table.row("all", "", made.total(), changed.total(), made.total() - changed.total())
    table.lines += ["", f"{harmless} harmless reorders; {wrong} damages judged wrongly."]
    print("\n".join(table.lines[-2:]))
    if options.save:
        common.save("damages", [table])
    return 0 if enough and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
