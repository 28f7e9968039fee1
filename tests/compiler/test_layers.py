"""The layers of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from debubble.compiler.errors import InputError
from debubble.compiler.layers import MAX_LAYERS, Layer, Layers
from debubble.compiler.profile import Memory, Profile, Stage


def _layer(name: str, forward: float, **more: Any) -> Layer:
    return Layer(name=name, forward=forward, backward_input=forward, backward_weight=0, **more)


def test_a_stage_is_the_sum_of_its_layers() -> None:
    """Times and memory add up; what is sent is what the last layer makes."""
    layers = Layers(
        layers=(
            _layer("a", 1, memory=Memory(3, -1, -2), static_memory=5, output_bytes=100),
            _layer("b", 2, memory=Memory(4, 0, -4), static_memory=6, output_bytes=7),
            _layer("c", 3),
        ),
        comm=0.5,
        time_unit="ms",
    )
    first, second = layers.profile((2, 3)).stages
    assert (first.forward, first.backward_input, first.static_memory, first.output_bytes) == (3, 3, 11, 7)
    assert first.memory == Memory(7, -1, -6)
    assert second.forward == 3
    assert layers.profile((2, 3)).comm == 0.5


def test_a_profile_of_one_stage_per_layer_is_a_table_of_layers() -> None:
    """And gathered one by one it is what it was."""
    profile = Profile(
        stages=tuple(Stage(forward=f, backward_input=2, backward_weight=1, backward=2.5) for f in (1, 2)),
        comm=3.0,
        time_unit="ms",
        memory_unit="GiB",
    )
    assert Layers.of(profile).profile((1, 2)) == profile


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    """Names and letters included."""
    layers = Layers(layers=(_layer("embedding", 1, letter="E"),), memory_unit="GiB")
    path = tmp_path / "layers.json"
    path.write_bytes(msgspec.json.encode(layers))
    assert Layers.load(path) == layers


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((), "at least one layer"),
        ((_layer("a", -1),), r"layers\[0\].forward"),
        ((_layer("a", 1), _layer("b", float("inf"))), r"layers\[1\].forward"),
        ((_layer("a", 1, letter="tt"),), "not a letter"),
    ],
)
def test_what_cannot_be_is_refused(layers: tuple[Layer, ...], words: str) -> None:
    """The message names the layer."""
    with pytest.raises(InputError, match=words):
        Layers(layers=layers)


def test_a_table_that_is_loaded_as_layers_says_what_reads_it(tmp_path: Path) -> None:
    """The hint names the function that reads every form."""
    path = tmp_path / "layers.csv"
    path.write_text("name,forward,backward_input,backward_weight\na,1,1,1\n")
    with pytest.raises(InputError, match="read_layers"):
        Layers.load(path)


def test_too_many_layers_are_refused() -> None:
    """The split looks at every pair of layers: what would take gigabytes is refused in words."""
    layer = Layer(name="block", forward=1, backward_input=1, backward_weight=1)
    with pytest.raises(InputError, match="are more than"):
        Layers(layers=(layer,) * (MAX_LAYERS + 1))
