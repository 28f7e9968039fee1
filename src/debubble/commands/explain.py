"""`debubble explain`: why a plan takes as long as it does, and what would help."""

from __future__ import annotations

import click

from ..compiler.errors import InputError
from ..compiler.plan import Plan
from ..explanation import Explanation, bearing, explain, robust
from ..summary import amount, percent
from .options import Numbers, check_writable, json_option
from .output import print_json, print_table, print_text


@click.command("explain")
@click.argument("plan", metavar="PLAN.json")
@click.option("--spread", type=Numbers(), help="Relative deviation of durations (default: as measured, or 0.05).")
@click.option("--robust", "search_robust", is_flag=True, help="Search for the order that bears jitter best.")
@click.option("--time-limit", type=Numbers(), default=5.0, show_default=True, help="Seconds for each question.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--output", metavar="ROBUST.json", help="Save the robust plan.")
@json_option
def command(
    plan: str,
    spread: float | None,
    search_robust: bool,
    time_limit: float,
    seed: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Explain a plan: what binds it, what more memory, a faster link or balanced stages would give (each searched
    again), which operations have no slack, and what random durations do to it."""
    check_writable(output)
    if output is not None and not search_robust:
        raise InputError("-o saves the robust plan, and none was asked for", hint="add --robust")
    loaded = Plan.load(plan)
    explanation = explain(loaded, spread=spread, time_limit=time_limit, seed=seed)
    better = robust(loaded, spread=spread, time_limit=5 * time_limit, seed=seed) if search_robust else None
    if better is not None and output is not None:
        better.save(output)
    if as_json:
        found = explanation.as_json()
        if better is not None:
            theirs = bearing(better.timeline, spread=spread, seed=seed)
            found["robust"] = {"method": better.schedule.method, "value": better.value, "plan": output}
            found["robust"] |= {"p50": theirs.p50, "p95": theirs.p95}
        print_json(found)
        return
    _print(explanation)
    if better is not None:
        theirs = bearing(better.timeline, spread=spread, seed=seed)
        print_text(
            "  no order was found that bears it better"
            if better is loaded
            else f"  {better.schedule.method}: {amount(better.value, _unit(explanation))} without jitter, "
            f"p50 {theirs.p50:.6g}, p95 {theirs.p95:.6g}" + (f"; saved as {output}" if output else "")
        )


def _unit(explanation: Explanation) -> str:
    return explanation.plan.problem.profile.time_unit


def _print(explanation: Explanation) -> None:
    """The explanation in words and one table."""
    plan, unit = explanation.plan, _unit(explanation)
    print_text(plan)
    print_text("\nWhat binds")
    for sentence in explanation.analysis.sentences():
        print_text(f"  {sentence}")
    full = ", ".join(map(str, explanation.full))
    print_text(f"  devices at their cap: {full or 'none'}")
    print_text("\nWhat would help (each searched again)")
    header = ["", plan.problem.objective, "less time", "lower bound", "at most"]
    found = [("unchanged", explanation.found, plan.certificate.lower_bound)]
    found += [(change.name, change.value, change.lower_bound) for change in explanation.changes]
    rows = [
        [f"  {name}", f"{value:g}", _saved(plan, value), f"{bound:g}", _saved(plan, bound)]
        for name, value, bound in found
    ]
    print_table(header, rows)
    jitter = explanation.jitter
    print_text(f"\nWhen durations deviate by up to {percent(jitter.spread)}, relative deviation ({jitter.runs} runs)")
    print_text(f"  p50 {jitter.p50:.6g}, p95 {jitter.p95:.6g}{f' {unit}' if unit else ''}")


def _saved(plan: Plan, value: float) -> str:
    """How much less a value is than the plan's."""
    return percent(max(0.0, 1 - value / plan.value) if plan.value else None)
