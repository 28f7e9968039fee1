"""PipeDream's files: the graph of a profiled model, and the map of its stages to ranks (msr-fiddle/pipedream).

    node1 -- ReLU -- forward_compute_time=4.5, backward_compute_time=5.4, activation_size=8e6, parameter_size=0
        node1 -- node2

Times are milliseconds, sizes bytes. A graph with branches becomes a chain of layers that are cut only where a single
value passes: after each node that every way through the model visits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import networkx

from ..errors import InputError
from ..layers import Layer, Layers
from ..profile import Memory
from .drawing import lines, shown

INPUT = "Input"
"""The name of the nodes that load data."""
DOMINANT = 0.8
"""From this part of all forward time on a node is probably no computation."""
MEBIBYTE = 2**20
_FIELD = re.compile(r"(\w+)=(\[[^\]]*\]|[^,\s]+)")
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


class _Node(NamedTuple):
    name: str
    forward: float
    backward: float
    activation: float
    parameters: float


def is_graph(text: str) -> bool:
    return any(" -- " in line for line in text.splitlines()[:5])


def read(text: str, *, include_input: bool = True) -> Layers:
    """The layers of a profile graph. Without `include_input`, nodes that load data take no time.

    A layer with parameters is taken to spend half its backward on the input gradient, one without all of it. What it
    hands on is held from F to W; its weights are counted with their gradients. Raises InputError, with the line, when
    the text is no such graph, and when branches leave no place to cut.
    """
    nodes, graph = _parse(text)
    notes = ["of each backward with parameters half is counted as W; static memory is weights and gradients"]
    whole = sum(node.forward for node in nodes.values())
    for key, node in nodes.items():
        loads = node.name == INPUT
        share = node.forward / whole if whole else 0.0
        if share > DOMINANT or (loads and node.forward):
            over = f", more than {DOMINANT:.0%}" if share > DOMINANT else ""
            heavy = f"{shown(key)} ({node.name}) takes {node.forward:g} ms, {share:.0%} of all forward time{over}"
            what = "; it loads data and computes nothing" if loads else ""
            notes.append(f"{heavy}{what}: it is {'' if include_input or not loads else 'not '}included")
        if loads and not include_input:
            nodes[key] = node._replace(forward=0.0, backward=0.0)
    return Layers(
        layers=tuple(_layer([nodes[key] for key in block]) for block in _chain(graph)),
        time_unit="ms",
        memory_unit="MiB",
        notes=tuple(notes),
    )


def _parse(text: str) -> tuple[dict[str, _Node], networkx.DiGraph]:
    nodes: dict[str, _Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in lines(text):
        parts = [part.strip() for part in line.split(" -- ")]
        if len(parts) == 2 and all(parts):
            edges.append((number, parts[0], parts[1]))
        elif len(parts) == 3:
            if parts[0] in nodes:
                raise InputError(f"{shown(parts[0])} is there twice", code="bad-token", line=number)
            nodes[parts[0]] = _node(parts[1], parts[2], number)
        elif line.strip():
            raise InputError(f"{shown(line)} is neither a node nor an edge", code="bad-token", line=number)
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    for number, source, target in edges:
        unknown = next((key for key in (source, target) if key not in nodes), None)
        if unknown is not None:
            raise InputError(f"an edge names {shown(unknown)}, which is no node", code="bad-token", line=number)
        graph.add_edge(source, target)
    if not nodes:
        raise InputError("the graph has no nodes", code="bad-token")
    if not networkx.is_directed_acyclic_graph(graph):
        raise InputError("the graph has a cycle", code="bad-token")
    return nodes, graph


def _node(name: str, fields: str, line: int) -> _Node:
    found = dict(_FIELD.findall(fields))
    missing = [key for key in _KEYS if key not in found]
    if missing:
        raise InputError(f"a node without {missing[0]}", code="bad-token", line=line)
    try:
        numbers = [sum(map(float, re.split(r"[;\s]+", found[key].strip("[]").strip()))) for key in _KEYS]
    except ValueError:
        raise InputError(f"{shown(fields)} has something that is no number", code="bad-token", line=line) from None
    return _Node(name, *numbers)


def _chain(graph: networkx.DiGraph) -> Iterable[list[str]]:
    """The nodes as consecutive blocks, each but the last ending in a node that every way through the graph visits."""
    order = list(networkx.lexicographical_topological_sort(graph, key=_number))
    before = {key: networkx.ancestors(graph, key) for key in order}
    after = {key: networkx.descendants(graph, key) for key in order}
    ends = [key for key in order if len(before[key]) + len(after[key]) + 1 == len(order)]
    if not ends:
        raise InputError(
            "the graph has no node that every way passes: branches cannot be made a chain of layers", code="branches"
        )
    blocks = []
    left = set(order)
    for end in ends:
        inside = (before[end] | {end}) & left
        blocks.append([key for key in order if key in inside])
        left -= inside
    blocks[-1] += [key for key in order if key in left]
    return blocks


def _number(key: str) -> tuple[int, str]:
    """Names such as node9 and node10 in the order of their numbers."""
    digits = re.sub(r"\D", "", key)
    return int(digits or 0), key


def _layer(nodes: list[_Node]) -> Layer:
    weight = sum(node.backward / 2 for node in nodes if node.parameters)
    backward = sum(node.backward for node in nodes)
    held = sum(node.activation for node in nodes) / MEBIBYTE
    return Layer(
        name=nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} to {nodes[-1].name}",
        forward=sum(node.forward for node in nodes),
        backward_input=backward - weight,
        backward_weight=weight,
        memory=Memory(held, 0.0, -held),
        static_memory=2 * sum(node.parameters for node in nodes) / MEBIBYTE,
        output_bytes=nodes[-1].activation,
    )


def is_map(content: Any) -> bool:
    """True for the decoded content of a file that maps stages to ranks."""
    return isinstance(content, dict) and "stage_to_rank_map" in content


def owners(content: dict[str, Any]) -> tuple[int, ...]:
    """The rank of each stage of such a map. Raises InputError for replicated stages, and for what is no such map."""
    ranks = content["stage_to_rank_map"]
    if not isinstance(ranks, dict) or not all(isinstance(held, list) for held in ranks.values()):
        raise InputError("stage_to_rank_map is not a list of ranks for each stage", code="bad-key")
    for stage, held in ranks.items():
        if len(held) != 1:
            raise InputError(
                f"replicated stages are not supported: stage {shown(str(stage))} is on {len(held)} ranks",
                code="replicated",
                hint="debubble plans one pipeline; replicate it as a whole",
            )
    try:
        return tuple(int(ranks[str(stage)][0]) for stage in range(len(ranks)))
    except (KeyError, TypeError, ValueError):
        raise InputError("stage_to_rank_map does not number its stages 0, 1, 2, ...", code="bad-key") from None
