"""PipeDream's graphs and maps."""

from __future__ import annotations

import pytest

from debubble.compiler.errors import InputError
from debubble.compiler.interchange.pipedream import owners, read

MEBIBYTE = 2**20


def _node(key: str, name: str, forward: float, backward: float = 0, size: float = MEBIBYTE, weights: float = 0) -> str:
    times = f"forward_compute_time={forward}, backward_compute_time={backward}"
    return f"{key} -- {name} -- {times}, activation_size={size}, parameter_size={weights}\n"


CHAIN = (
    _node("node10", "Linear(4, 4)", 3, 4, 2 * MEBIBYTE, 5 * MEBIBYTE)
    + _node("node9", "ReLU", 1, 2)
    + _node("node1", "Input", 96)
    + "\tnode1 -- node9\n\tnode9 -- node10\n"
)


def test_a_chain_is_read_in_the_order_of_its_edges() -> None:
    """Whatever the order of the lines."""
    assert [layer.name for layer in read(CHAIN).layers] == ["Input", "ReLU", "Linear(4, 4)"]


def test_half_of_a_backward_with_parameters_is_the_weights() -> None:
    """All of it is the input gradient where there are none; weights count with their gradients, sizes in MiB."""
    _, relu, linear = read(CHAIN).layers
    assert (relu.backward_input, relu.backward_weight) == (2, 0)
    assert (linear.backward_input, linear.backward_weight) == (2, 2)
    assert linear.static_memory == 10
    assert (linear.memory.forward, linear.memory.backward_weight, linear.output_bytes) == (2, -2, 2 * MEBIBYTE)


def test_loading_data_is_included_and_said() -> None:
    """A node that takes most of the forward time, and computes nothing."""
    layers = read(CHAIN)
    assert layers.layers[0].forward == 96
    assert "'node1' (Input) takes 96 ms, 96% of all forward time, more than 80%" in layers.notes[1]
    assert layers.notes[1].endswith("it is included")


def test_loading_data_can_be_left_out() -> None:
    """The layer stays, without its time."""
    layers = read(CHAIN, include_input=False)
    assert [layer.forward for layer in layers.layers] == [0, 1, 3]
    assert layers.notes[1].endswith("it is not included")


def test_branches_lie_in_one_layer() -> None:
    """It is cut only where one value passes: before and after the two ways."""
    nodes = "".join(_node(key, key.upper(), 1) for key in "abcde")
    layers = read(nodes + "a -- b\na -- c\nb -- d\nc -- d\nd -- e\n").layers
    assert [(layer.name, layer.forward) for layer in layers] == [("A", 1), ("B to D", 3), ("E", 1)]


def test_a_graph_that_nowhere_narrows_is_refused() -> None:
    """Two ways side by side from end to end are no chain."""
    nodes = "".join(_node(key, key, 1) for key in "abcd")
    with pytest.raises(InputError, match="branches cannot be made a chain"):
        read(nodes + "a -- b\nc -- d\n")


def test_a_list_of_sizes_is_its_sum() -> None:
    """Nodes with several outputs have one."""
    text = (
        "a -- LSTM -- forward_compute_time=1, backward_compute_time=1, activation_size=[3.0; 4.0], parameter_size=0\n"
    )
    assert read(text).layers[0].output_bytes == 7


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        (_node("a", "A", 1) + "a -- b\n", "'b', which is no node", 2),
        (_node("a", "A", 1) * 2, "'a' is there twice", 2),
        (_node("a", "A", 1) + "nonsense\n", "neither a node nor an edge", 2),
        ("a -- A -- forward_compute_time=1\n", "a node without backward_compute_time", 1),
        (_node("a", "A", 1).replace("=1", "=one"), "no number", 1),
        (_node("a", "A", 1) + _node("b", "B", 1) + "a -- b\nb -- a\n", "cycle", None),
        ("\n", "no nodes", None),
    ],
)
def test_what_is_no_graph_is_refused(text: str, words: str, line: int | None) -> None:
    """The message says what is wrong, and in which line."""
    with pytest.raises(InputError, match=words) as caught:
        read(text)
    assert caught.value.line == line


def test_a_map_without_replication_is_a_placement() -> None:
    """One rank a stage, in the order of the stages."""
    assert owners({"stage_to_rank_map": {"1": [1], "0": [0], "2": [0]}}) == (0, 1, 0)


@pytest.mark.parametrize("ranks", [list(range(15)), []])
def test_replicated_stages_are_refused(ranks: list[int]) -> None:
    """Nothing is cut off in silence."""
    with pytest.raises(InputError, match="replicated stages are not supported"):
        owners({"stage_to_rank_map": {"0": ranks, "1": [15]}})


@pytest.mark.parametrize("ranks", [{"0": [0], "7": [1]}, {"0": ["x"]}, [[0]], {"0": 0}])
def test_what_is_no_map_is_refused(ranks: object) -> None:
    """Stages are numbered from 0, and each has a list of ranks."""
    with pytest.raises(InputError, match="stage_to_rank_map"):
        owners({"stage_to_rank_map": ranks})
