"""Layer tables: one layer a line, as CSV, for spreadsheets and for writing by hand.

    name,forward,backward_input,backward_weight,memory_forward,memory_backward_weight,output_bytes
    embedding,0.5,0,0.7,16,-16,33554432
    block.0,4.1,4.3,3.9,480,-480,33554432

The columns are the keys of a stage in a profile, those of its memory with `memory_` before them, and `letter`. An empty
cell stands for the default.
"""

from __future__ import annotations

import csv
import io

import msgspec

from ..errors import InputError
from ..layers import Layer, Layers
from ..profile import Memory
from .drawing import shown

_MEMORY = {f"memory_{name}": name for name in Memory.__struct_fields__}
_COLUMNS = (*(name for name in Layer.__struct_fields__ if name != "memory"), *_MEMORY)


def read(text: str) -> Layers:
    """The layers of a table. Raises InputError, with the line, when a column or a cell cannot be understood."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        unknown = next((name for name in header if name not in _COLUMNS), None)
        if unknown is not None:
            hint = f"columns are {', '.join(sorted(_COLUMNS))}"
            raise InputError(f"unknown column {shown(unknown)}", code="bad-key", line=1, hint=hint)
        layers = [_layer(header, row, rows.line_num) for row in rows if any(map(str.strip, row))]
    except csv.Error as error:
        raise InputError(f"not a CSV file: {error}", code="bad-token", line=rows.line_num) from None
    return Layers(layers=tuple(layers))


def _layer(header: list[str], row: list[str], line: int) -> Layer:
    if len(row) != len(header):
        raise InputError(f"{len(row)} cells in {len(header)} columns", code="bad-token", line=line)
    cells = {key: cell.strip() for key, cell in zip(header, row, strict=True) if cell.strip()}
    memory = {name: cells.pop(key) for key, name in _MEMORY.items() if key in cells}
    if memory:  # what is not written of it is no change, where something is
        cells["memory"] = dict.fromkeys(Memory.__struct_fields__, 0.0) | memory  # type: ignore[assignment]
    try:
        return msgspec.convert(cells, Layer, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(str(error), code="bad-key", line=line) from None
