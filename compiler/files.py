"""Reading and writing files: bounded, strict, and never half-written."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import InputError
from .places import Places, steps

MAX_BYTES = 512 * 2**20
"""Files larger than this are refused before they are read."""

STANDARD_INPUT = "-"

T = TypeVar("T")
_stream: dict[tuple[int, int], bytes] = {}
"""What the last pipe, or standard input, gave, by (device, inode): it gives that once, but may be asked again."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, or of standard input where the path is `-`.

    Raises InputError when it cannot be read, is empty or is larger than MAX_BYTES.
    """
    name = os.fspath(path)
    try:
        status = os.fstat(0) if name == STANDARD_INPUT else os.stat(name)
        whole = name != STANDARD_INPUT and stat.S_ISREG(status.st_mode)
        key = status.st_dev, status.st_ino
        content = None if whole else _stream.get(key)
        if content is None:
            with open(0, "rb", closefd=False) if name == STANDARD_INPUT else open(name, "rb") as file:
                content = file.read(MAX_BYTES + 1)
            if not whole:
                _stream.clear()
                _stream[key] = content
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror or error}", code="unreadable", source=name) from None
    if len(content) > MAX_BYTES:
        raise InputError(f"the file is larger than {MAX_BYTES // 2**20} MiB", code="too-large", source=name)
    if not content.strip():
        raise InputError("the file is empty", code="empty", source=name)
    return content


def read_text(path: str | os.PathLike[str]) -> str:
    """The content of a UTF-8 text file. Raises InputError as `read_bytes` does, and when it is not text."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not a text file: byte {error.start} is not UTF-8", code="not-text", source=os.fspath(path)
        ) from None


class _Header(msgspec.Struct):
    format: str


def read_json(path: str | os.PathLike[str], kind: type[T], format: str) -> T:
    """Decode a versioned JSON file such as `{"format": "debubble.profile/1", ...}` into `kind`.

    Raises InputError that names the file, and the place or the key, when it is not JSON, not of that
    format, of a newer version, or has a missing, unknown or mistyped key.
    """
    name = os.fspath(path)
    content = read_bytes(path)
    family, version = format.split("/")
    try:
        header = msgspec.json.decode(content, type=_Header)
        found = re.fullmatch(rf"{re.escape(family)}/(\d{{1,9}})", header.format)
        if found is None:
            raise InputError(f"this is a {header.format!r} file, not {format!r}", code="wrong-format", source=name)
        if int(found[1]) > int(version):
            raise InputError(
                f"this file is of version {found[1]}, newer than {version}, the newest that this debubble knows",
                code="newer-version",
                source=name,
                hint="upgrade debubble",
            )
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        message = str(error)
        hint = f'the file must begin with {{"format": "{format}", ...}}' if "`format`" in message else None
        raise InputError(message, code="bad-key", source=name, hint=hint, **_place(message, content)) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), content, name) from None
    except RecursionError:
        raise InputError("the JSON is nested too deeply", code="malformed-json", source=name) from None
    except InputError as error:
        error.source = error.source or name
        raise


def _place(message: str, content: bytes) -> dict[str, int]:
    """The place that a message of msgspec is about: `... unknown field `x` - at `$.stages[2]``."""
    path = re.search(r"at `\$(.*)`$", message)
    unknown = re.search(r"unknown field `(\w+)`", message)
    return Places(lambda: content.decode(errors="replace")).of(
        *steps(path[1] if path else ""), *([unknown[1]] if unknown else [])
    )


def _malformed(message: str, content: bytes, name: str) -> InputError:
    """Turn msgspec's byte offset into a line and a column."""
    match = re.search(r"\(byte (\d+)\)", message)
    offset = min(int(match[1]), len(content)) if match else len(content)
    before = content[:offset]
    return InputError(
        message if match else f"{message} (the file ends too early)",
        code="malformed-json",
        source=name,
        line=before.count(b"\n") + 1,
        column=offset - (before.rfind(b"\n") + 1) + 1,
    )


def write(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write beside the target, then rename: readers see the old file or the whole new one, never a part.

    Raises InputError when the place cannot be written.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():  # a pipe or a device such as /dev/stdout
            target.write_bytes(data)
            return
        handle, beside = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(beside, 0o666 & ~mask)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise InputError(
            f"cannot write the file: {error.strerror or error}", code="unwritable", source=os.fspath(path)
        ) from None
