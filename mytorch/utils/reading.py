"""Reading files that may be damaged: regular files only, and JSON within limits."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from .writing import with_numbers

MAX_BYTES = 100_000_000  # of a JSON text, as in a safetensors header
MAX_DEPTH = 200  # of nested JSON: what walks it may recurse
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}


def check_regular(path: str | os.PathLike, verb: str = "load") -> None:
    """Checks that a path is that of a regular file, without opening it.

    Raises:
        FileNotFoundError: it does not exist.
        IsADirectoryError: it is a folder.
        OSError: it is a FIFO, a socket or a device; reading it might wait forever.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"can't {verb} {path}: no such file") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"can't {verb} {path}: it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(f"can't {verb} {path}: it is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}")


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Opens a regular file to read its bytes: those of this moment, even if the file is replaced later.

    Raises:
        OSError: see `check_regular`.
    """
    check_regular(path)
    # If the file became a FIFO after the check, O_NONBLOCK keeps open() from waiting for a writer.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))


def read_text(path: str | os.PathLike, limit: int = MAX_BYTES) -> str:
    """Returns the text of a small UTF-8 file.

    Raises:
        OSError: see `check_regular`.
        ValueError: it is larger than `limit`, or not UTF-8.
    """
    with open_regular(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(f"{path} is larger than {limit:,} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None


def read_json(path: str | os.PathLike) -> Any:
    """Returns the content of a JSON file.

    Raises:
        OSError, ValueError: see `read_text` and `parse_json`; the message names the file.
    """
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def read_json_lines(path: str | os.PathLike) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields each line of a file of JSON objects, and its content; the losses in it may be NaN.

    That is written as `json_text` does, or as the word NaN.

    A last line without its newline, as a killed process leaves it, is skipped.

    Raises:
        OSError: see `check_regular`.
        ValueError: a line is no JSON object; the message names the file and the number of the line.
    """
    with open_regular(path) as file:
        number = 0
        while (line := file.readline(MAX_BYTES)).endswith(b"\n"):
            number += 1
            try:
                content = parse_json(line.decode("utf-8"), allow_nan=True)
                if not isinstance(content, dict):
                    raise ValueError(f"expected a JSON object, got {type(content).__name__}")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}, is damaged: {error}") from error
            yield line, with_numbers(content)


def parse_json(text: str, allow_nan: bool = False) -> Any:
    """Returns the content of a JSON text.

    Raises:
        ValueError: it is no JSON, is nested deeper than MAX_DEPTH, has a key twice in one object, half of a
            surrogate pair, or a number that is infinite or, without `allow_nan`, the word NaN or Infinity.
    """
    try:
        content = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_constant=float if allow_nan else _refuse,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_depth(content)
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape")  # odd bytes of paths
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair, which is no character") from None
    return content


def check_depth(content: object) -> None:
    """Raises ValueError if lists and dicts are nested deeper than MAX_DEPTH."""
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        parents = [x for x in level if isinstance(x, (dict, list))]
        if not parents:
            return
        level = [child for x in parents for child in (x.values() if isinstance(x, dict) else x)]
    raise ValueError(f"it is nested too deeply, the limit is {MAX_DEPTH}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):  # json would use the last, other libraries the first
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in content if names.count(n) > 1)!r} occurs twice")
    return content


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")


def printable(text: str) -> str:
    """Returns a text of unknown origin without control characters, which a terminal would obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def is_count(x: object, minimum: int = 0) -> bool:
    """Returns whether `x` is an int of at least `minimum`; bools are none."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= minimum
