"""Layers: what the parts of a model cost, one after the other, before they are gathered into stages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from . import files
from .division import merge
from .errors import InputError
from .profile import Link, Profile, Stage

FORMAT = "debubble.layers/1"
MAX_LAYERS = 4096
"""More layers are refused: the best split looks at every pair of them."""


class Layer(Stage, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One layer, or a part of the model that is not cut: costs as those of a stage, a name, and its letter in
    Megatron-LM's layouts (E embedding, t transformer layer, m multi-token prediction, L loss) where it has one."""

    name: str
    letter: str = ""


class Layers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The layers of a model in their order; `comm` and units as in a profile, `notes` on what the numbers include.

    Raises InputError when there are none, or a number is out of range.
    """

    format: str = FORMAT
    layers: tuple[Layer, ...]
    comm: float | Link | tuple[tuple[float, ...], ...] = 0.0
    time_unit: str = ""
    memory_unit: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("layers: a model needs at least one layer", code="bad-key")
        if len(self.layers) > MAX_LAYERS:
            raise InputError(f"layers: {len(self.layers)} are more than {MAX_LAYERS}", code="too-large")
        for index, layer in enumerate(self.layers):
            if len(layer.letter) > 1 or not layer.letter.isascii() or (layer.letter and not layer.letter.isalpha()):
                raise InputError(f"layers[{index}].letter: {layer.letter!r} is not a letter", code="bad-key")
        try:
            Profile(stages=self.layers, comm=self.comm)
        except InputError as error:
            error.message = error.message.replace("stages[", "layers[")
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Layers:
        """Read a file of layers in debubble's own format. Raises InputError naming the file and the key."""
        try:
            return files.read_json(path, cls, FORMAT)
        except InputError as error:
            error.hint = error.hint or "debubble.read_layers reads CSV tables and profiles, too"
            raise

    @classmethod
    def of(cls, profile: Profile) -> Layers:
        """The stages of a profile as layers, named by their numbers, as `debubble profile` measures a model that it
        cuts into its layers."""
        layers = tuple(Layer(name=str(n), **msgspec.structs.asdict(stage)) for n, stage in enumerate(profile.stages))
        return cls(layers=layers, comm=profile.comm, time_unit=profile.time_unit, memory_unit=profile.memory_unit)

    def stages(self, ends: Sequence[int]) -> list[tuple[Layer, ...]]:
        """The layers of each stage, when stage s ends before layer `ends[s]`."""
        return [self.layers[first:last] for first, last in pairwise((0, *ends))]

    def profile(self, ends: Sequence[int]) -> Profile:
        """The profile of these stages. Each sends what its last layer does."""
        stages = [
            msgspec.structs.replace(merge(held), output_bytes=held[-1].output_bytes) for held in self.stages(ends)
        ]
        return Profile(stages=tuple(stages), comm=self.comm, time_unit=self.time_unit, memory_unit=self.memory_unit)
