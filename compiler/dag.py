"""The dependency DAG of a problem, for users who want to look at it or feed it to other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .operation import Operation
from .problem import Problem
from .simulation import inputs

if TYPE_CHECKING:
    import networkx


def operations(problem: Problem, *, fused: bool = False) -> list[Operation]:
    """Every operation of a complete schedule: F, B and W (or F and BW when `fused`)."""
    kinds = ("F", "BW") if fused else ("F", "B", "W")
    return [
        Operation(kind, stage, microbatch)
        for microbatch in range(problem.microbatches)
        for stage in range(problem.stages)
        for kind in kinds
    ]


def dag(problem: Problem, *, fused: bool = False) -> networkx.DiGraph:
    """The dependencies between all operations of a problem.

    Nodes are `Operation`s with `device`, `duration` and `memory` (the signed change); edges carry `transfer`, the
    time between the end of the one and the earliest start of the other.
    """
    import networkx

    graph = networkx.DiGraph()
    for operation in operations(problem, fused=fused):
        graph.add_node(
            operation,
            device=problem.device(operation),
            duration=problem.duration(operation),
            memory=problem.cost(operation).change,
        )
    for operation in list(graph):
        for need in inputs(operation, problem.stages):
            made = Operation("BW", need.stage, need.microbatch) if fused and need.kind == "B" else need
            boundary = min(made.stage, operation.stage)
            transfer = problem.transfer(problem.device(made), problem.device(operation), boundary, made.microbatch)
            graph.add_edge(made, operation, transfer=transfer)
    return graph
