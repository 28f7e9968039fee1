"""Files of layers in any form: debubble's own, profiles of one stage per layer, CSV tables, PipeDream's graphs."""

from __future__ import annotations

import os

import msgspec

from .. import files, layers
from ..errors import InputError
from ..layers import Layers
from ..profile import Profile
from . import layer_table, pipedream


def read_layers(path: str | os.PathLike[str], *, include_input: bool = True) -> Layers:
    """The layers in a file, whatever its form; `include_input` is that of `pipedream.read`.

    Raises InputError, which names the file, when it cannot be understood.
    """
    found = read_model(path, include_input=include_input)
    return Layers.of(found) if isinstance(found, Profile) else found


def read_model(path: str | os.PathLike[str], *, include_input: bool = True) -> Profile | Layers:
    """The profile in a file, or its layers. Raises InputError, which names the file, when it cannot be understood."""
    text = files.read_text(path)
    try:
        if text.lstrip().startswith("{"):
            return _from_json(path, text)
        if pipedream.is_graph(text):
            return pipedream.read(text, include_input=include_input)
        return layer_table.read(text)
    except InputError as error:
        error.source = error.source or os.fspath(path)
        raise


def _from_json(path: str | os.PathLike[str], text: str) -> Profile | Layers:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # `load` says where
        return Profile.load(path)
    if pipedream.is_map(content):
        placed = ",".join(map(str, pipedream.owners(content)))
        raise InputError(
            "this maps stages to ranks and holds no costs", code="wrong-format", hint=f"--placement {placed} does so"
        )
    is_layers = str(content.get("format")).split("/")[0] == layers.FORMAT.split("/")[0]
    return Layers.load(path) if is_layers else Profile.load(path)
