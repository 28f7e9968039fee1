"""Protocol buffers' wire format, as far as writing needs it (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """A whole number of at least 0 in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def number(field: int, value: int) -> bytes:
    """A field of an integer, boolean or enumeration type; `value` is at least 0."""
    return varint(field << 3) + varint(value)


def fixed(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | 1) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field: int, *content: bytes) -> bytes:
    """A field that holds a message: its encoded fields, joined."""
    body = b"".join(content)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return message(field, value.encode(errors="replace"))
