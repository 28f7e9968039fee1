"""Schedule quality: the search beside the peers, on published problems and on problems with proven optima.

    python benchmarks/quality.py TABLE [--limit SECONDS] [--backend NAME] [--save]

with TABLE one of zero-bubble, optima, tight, v, placements and dualpipe.

Peers in the same run: torch's own orders, and the PyPI package zbpp-light where it is installed; published values
where the authors' code cannot be installed. Rates are (cost - work) / cost, as published.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import time
from dataclasses import replace
from pathlib import Path

from common import INSTANCES, Table, arguments, cost_set, save, uniform

from debubble.compiler import placement
from debubble.compiler.errors import DebubbleError
from debubble.compiler.named import named_schedule
from debubble.compiler.operation import Operation
from debubble.compiler.plan import Plan
from debubble.compiler.problem import Problem
from debubble.compiler.profile import Memory, Profile, Stage
from debubble.compiler.schedule import Schedule
from debubble.compiler.simulation import simulate
from debubble.solver.search import search

ZERO_BUBBLE = [  # p, m, costs (us), transfer, (hidden size, heads), rates of ZB-1p and ZB-2p (arXiv 2401.10241)
    (8, 24, (18522, 18086, 9337), 601, (2304, 24), 0.1585, 0.0433),
    (8, 32, (18513, 18086, 9331), 626, (2304, 24), 0.1242, 0.0039),
    (8, 64, (18546, 18097, 9321), 762, (2304, 24), 0.0674, 0.0026),
    (8, 24, (29718, 29444, 19927), 527, (4096, 32), 0.1323, 0.0029),
    (8, 32, (29802, 29428, 19530), 577, (4096, 32), 0.1045, 0.0022),
    (8, 64, (29935, 29621, 19388), 535, (4096, 32), 0.0554, 0.0010),
    (16, 48, (11347, 11248, 8132), 377, (5120, 40), 0.1397, 0.0066),
    (16, 64, (11307, 11254, 8101), 379, (5120, 40), 0.1088, 0.0054),
    (16, 128, (11325, 11308, 8109), 378, (5120, 40), 0.0576, 0.0028),
    (32, 96, (10419, 10207, 7715), 408, (6144, 48), 0.1421, 0.0038),
    (32, 128, (10408, 10204, 7703), 408, (6144, 48), 0.1106, 0.0029),
    (32, 256, (10402, 10248, 7698), 460, (6144, 48), 0.0594, 0.0018),
]


def timed(problem: Problem, limit: float, backend: str) -> tuple[Plan, float]:
    start = time.monotonic()
    return search(problem, time_limit=limit, backend=backend), time.monotonic() - start


def rate(value: float, work: float) -> float:
    return (value - work) / value


def zbpp_light(problem: Problem) -> float | None:
    """The makespan of the order that the PyPI package zbpp-light makes; None where it is not installed."""
    spec = importlib.util.find_spec("zbpp_light")
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / "auto_schedule.py"  # the package itself needs Megatron
    module_spec = importlib.util.spec_from_file_location("zbpp_auto_schedule", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["zbpp_auto_schedule"] = module
    module_spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        nodes = module.auto_schedule(problem.devices, problem.microbatches)
    orders = [[Operation(n.type, n.stage, n.minibatch) for n in row if n.type in ("F", "B", "W")] for row in nodes]
    return simulate(problem, Schedule.of(orders)).makespan


def zero_bubble(limit: float, backend: str) -> list[Table]:
    """The published zero-bubble table: makespan at the memory of 1F1B, span at twice that."""
    table = Table(
        f"Zero-bubble table, {limit:g} s per search",
        [
            *("p", "m", "1F1B", "ZB-H1", "zbpp-light", "ZB-1p published", "ours 1p", "gap", "proof", "s"),
            *("ZB-2p published", "ours 2p (span)", "gap", "proof", "s"),
        ],
    )
    for p, m, costs, comm, _, one_p, two_p in ZERO_BUBBLE:
        work = m * sum(costs)
        first, second = (
            uniform("linear", p, m, costs, comm=comm, cap=2 * p * times, objective=objective)
            for times, objective in ((1, "makespan"), (2, "span"))
        )
        free = replace(first, backward="any")  # 1F1B's backward is fused
        named = [rate(simulate(free, named_schedule(n, free)).makespan, work) for n in ("1f1b", "zb-h1")]
        peer = zbpp_light(first)
        cells: list[object] = [p, m, *named, None if peer is None else rate(peer, work)]
        for problem, published in ((first, one_p), (second, two_p)):
            plan, seconds = timed(problem, limit, backend)
            cells += [published, rate(plan.value, work), f"{plan.gap:.2%}", plan.certificate.proof, round(seconds, 1)]
        table.row(*cells)
    return [table, measured_memory(limit, backend)]


def measured_memory(limit: float, backend: str) -> Table:
    """The same rows with the authors' memory: F holds 34h + 5a x 1024, W frees 32h, B the rest."""
    table = Table(
        f"With the measured memory, {limit:g} s per search", ["p", "m", "h", "a", "cap", "ours", "bound", "gap", "s"]
    )
    for p, m, costs, comm, (h, a), *_ in ZERO_BUBBLE:
        held = 34 * h + 5 * a * 1024
        memory = (held, 32 * h - held, -32 * h)
        for times, objective in ((1, "makespan"), (2, "span")):
            cap = times * p * held
            problem = uniform("linear", p, m, costs, comm=comm, memory=memory, cap=cap, objective=objective)
            plan, seconds = timed(problem, limit, backend)
            cells = (plan.value, plan.certificate.lower_bound, f"{plan.gap:.2%}", round(seconds, 1))
            table.row(p, m, h, a, f"{times}p, {objective}", *cells)
    return table


def optima(limit: float, backend: str) -> list[Table]:
    """Every instance with a proven optimum: found, proved, in what time."""
    table = Table(
        f"Proven optima, {limit:g} s per search", ["instance", "optimum", "ours", "bound", "by", "proof", "s"]
    )
    found = proved = 0
    for instance in INSTANCES:
        plan, seconds = timed(instance.problem(), limit, backend)
        certificate = plan.certificate
        found += plan.value <= instance.optimum * (1 + 1e-9)
        proved += plan.status == "optimal"
        cells = (plan.value, certificate.lower_bound, certificate.name, certificate.proof, round(seconds, 1))
        table.row(instance.name, instance.optimum, *cells)
    table.row("sum", len(INSTANCES), f"{found} found", f"{proved} proved", "", "", "")
    return [table]


def tight(limit: float, backend: str) -> list[Table]:
    """Costs 10/11/8, transfer 1, memory 2, -1, -1: below and above the memory of 1F1B."""
    table = Table(
        f"Linear, 10/11/8, transfer 1, {limit:g} s per search", ["p", "m", "cap / 2p", "ours", "bound", "gap", "s"]
    )
    for p, m in ((4, 8), (4, 12), (8, 16), (8, 24), (8, 32), (16, 48)):
        for times in (0.5, 0.75, 1, 1.25, 1.5, 2):
            problem = uniform("linear", p, m, (10, 11, 8), comm=1, cap=2 * p * times)
            plan, seconds = timed(problem, limit, backend)
            bound = plan.certificate.lower_bound
            table.row(p, m, times, plan.value, bound, f"{plan.gap:.2%}", round(seconds, 1))
    return [table]


def v(limit: float, backend: str) -> list[Table]:
    """V placement of two chunks: beside ZB-V, V-Half and V-Min at the memory they need, as makespans and spans."""
    table = Table(
        f"V placement, {limit:g} s per search",
        ["p", "m", "cap", "objective", "peer", "its value", "ours", "bound", "gap", "s"],
    )
    small = (8, 16, (5, 5.5, 4), 1.0)
    rows = [(small, 32, "zb-v"), (small, 20, "v-half"), (small, 16, "v-min")]
    rows += [((16, 48, (14407, 14380, 9676), 1610.0), 64, "zb-v"), ((32, 256, (9447, 9644, 7193), 887.0), 128, "zb-v")]
    for (p, m, costs, comm), cap, peer in rows:
        for objective in ("makespan", "span"):
            problem = uniform("v", p, m, costs, comm=comm, cap=cap, objective=objective)
            plan, seconds = timed(problem, limit, backend)
            its = simulate(problem, named_schedule(peer, problem)).value
            bound = plan.certificate.lower_bound
            table.row(p, m, cap, objective, peer, its, plan.value, bound, f"{plan.gap:.2%}", round(seconds, 1))
    return [table]


FAMILIES = {  # placement, and how much each stage costs and holds as a share of an equal stage
    "linear": lambda p: (placement.linear(p), [1.0] * p),
    "v": lambda p: (placement.v(p), [0.5] * 2 * p),
    "bidirectional": lambda p: (placement.bidirectional(p), [1.0] * p),
    "heavy ends": lambda p: (placement.linear(p), [1.3, *[1.0] * (p - 2), 1.4]),
    "slow stage": lambda p: (placement.linear(p), [1.5 if s == p // 3 else 1.0 for s in range(p)]),
    "list 0..p-1,p-1,p-2": lambda p: (placement.explicit((*range(p), p - 1, p - 2)), [*[1.0] * (p - 2), *[0.5] * 4]),
}


def placements(limit: float, backend: str) -> list[Table]:
    """Both objectives on other placements than the line, and on uneven stages, from the memory of 1F1B and ZB-V on.

    What is left open is tried again with CP-SAT as the back end: the last column.
    """
    table = Table(
        f"Placements and uneven stages, 10/11/8, transfer 1, {limit:g} s per search",
        ["placement", "p", "m", "cap / 2p", "objective", "ours", "bound", "by", "gap", "s", "with CP-SAT"],
    )
    rows = [(name, p, times) for name in FAMILIES for p in (4, 8) for times in (1, 1.5, 2)]
    for name, p, times in [*rows, ("v", 16, 1)]:
        place, shares = FAMILIES[name](p)
        stages = tuple(
            Stage(forward=10 * x, backward_input=11 * x, backward_weight=8 * x, memory=Memory(2 * x, -x, -x))
            for x in shares
        )
        for objective in ("makespan", "span"):
            problem = Problem(Profile(stages=stages, comm=1.0), place, 2 * p, 2 * p * times, objective, "split")
            plan, seconds = timed(problem, limit, backend)
            again = timed(problem, limit, "cp-sat")[0] if plan.gap else None
            closed = None if again is None else f"{again.value:g} / {again.certificate.lower_bound:g}, {again.gap:.2%}"
            cells = (plan.value, plan.certificate.lower_bound, plan.certificate.name, f"{plan.gap:.2%}")
            table.row(name, p, 2 * p, times, objective, *cells, round(seconds, 1), closed)
    return [table]


def dualpipe(limit: float, backend: str) -> list[Table]:
    """At the memory of DualPipe and DualPipeV, without and with saved time in overlapped pairs."""
    table = Table(
        f"Beside DualPipe, {limit:g} s per search",
        ["p", "m", "costs", "cap", "DualPipe", "ours", "bound", "gap", "s"],
    )
    for p, m in ((4, 8), (8, 16), (8, 20)):
        for costs in ((1, 1, 1), (3, 4, 2)):
            problem = uniform("bidirectional", p, m, costs, memory=(1, -1, 0), cap=p + 1, backward="any")
            its = simulate(problem, named_schedule("dualpipe", problem)).value
            plan, seconds = timed(problem, limit, backend)
            bound = plan.certificate.lower_bound
            table.row(p, m, costs, p + 1, its, plan.value, bound, f"{plan.gap:.2%}", round(seconds, 1))
    return [table, *(paired(place, limit, backend) for place in ("bidirectional", "v"))]


def paired(place: str, limit: float, backend: str) -> Table:
    """Ten random cost sets, p = 4 and m = 8, uneven stages, whose pairs and fused backwards save time."""
    table = Table(
        f"Costed pairs on a {place} placement, {limit:g} s per search",
        ["set", "mean costs", "pair", "cap", "DualPipe", "ours", "saved", "bound", "gap", "s"],
    )
    for seed in range(10):
        problem, named = cost_set(place, seed)
        its = simulate(problem, named).value
        plan, seconds = timed(problem, limit, backend)
        stages, ratios = problem.profile.stages, problem.pair_ratios
        means = (sum(column) / len(stages) for column in zip(*((s.forward, s.fused) for s in stages), strict=True))
        costs = "F {:.1f}, BW {:.1f}".format(*means)
        cells = (plan.value, f"{1 - plan.value / its:.1%}", plan.certificate.lower_bound, f"{plan.gap:.2%}")
        table.row(seed, costs, f"{min(ratios)} to {max(ratios)}", problem.caps[0], its, *cells, round(seconds, 1))
    return table


TABLES = {
    "zero-bubble": zero_bubble,
    "optima": optima,
    "tight": tight,
    "v": v,
    "placements": placements,
    "dualpipe": dualpipe,
}


def main() -> None:
    parser = arguments(__doc__ or "", "quality-TABLE")
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per search (default 20)")
    parser.add_argument("--backend", default="cbc", help="cbc, highs or cp-sat")
    chosen = parser.parse_args()
    tables = TABLES[chosen.table](chosen.limit, chosen.backend)
    if chosen.save:
        save(f"quality-{chosen.table}", tables)


if __name__ == "__main__":
    try:
        main()
    except DebubbleError as error:
        sys.exit(f"error: {error}")
