"""
Reads and writes safetensors files; the header is checked before memory is allocated for a tensor.

    8 bytes  length of the header, little-endian
    header   JSON: {"__metadata__": {key: text}, name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    data     the values of the tensors, without gaps

Source: the format, https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import math
import os
import re
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np

from ..backends.dtypes import as_dtype
from .reading import MAX_BYTES, is_count, parse_json

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "BOOL": "bool", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8",
}
_CODES = {name: code for code, name in DTYPES.items()}
_SIZES = {code: int(re.sub(r"\D", "", code) or 8) // 8 for code in DTYPES}  # bytes: those of F64 are 8


class Entry(NamedTuple):
    """What the header says of a tensor; its values are the bytes begin … end of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """An open safetensors file.

    Args:
        file: a binary file, which stands at its beginning and can seek.

    Attributes:
        metadata: the texts in the header.
        entries: {name: entry} of the tensors.

    Raises:
        ValueError: it is no safetensors file, is truncated, or its header is damaged.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        start = file.read(9)
        length = int.from_bytes(start[:8], "little")
        size = file.seek(0, os.SEEK_END)
        if start[8:] != b"{" or length > MAX_BYTES:
            raise ValueError(_not_safetensors(start))
        self._begin = 8 + length  # of the data
        try:
            if self._begin > size:
                raise ValueError(f"its header has {length:,} bytes, the file {size:,}")
            file.seek(8)
            header = parse_json(file.read(length).decode("utf-8"))
            json.dumps(header, ensure_ascii=False).encode()  # raises ValueError for half of a surrogate pair
            self.metadata = _checked_metadata(header.pop("__metadata__", {}))
            self.entries = {name: _checked_entry(name, entry) for name, entry in header.items()}
            _check_offsets(self.entries, size - self._begin)
        except ValueError as error:
            raise ValueError(f"it is a safetensors file, but truncated or damaged: {error}") from error

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of a tensor.

        Raises:
            ValueError: mytorch doesn't have it.
            ImportError: it is bfloat16 and the package ml_dtypes is not installed.
        """
        code = self.entries[name].dtype
        if code not in DTYPES:
            known = ", ".join(DTYPES.values())
            raise ValueError(
                f"tensor {name!r} has dtype {code}, which is not supported; supported are {known}"
            )
        return np.dtype(as_dtype(DTYPES[code]))  # imports ml_dtypes, which registers bfloat16 with NumPy

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as a new array.

        Raises:
            MemoryError: it doesn't fit in memory.
            ValueError, ImportError: see `dtype`; the file was truncated meanwhile.
        """
        dtype, (code, shape, begin, end) = self.dtype(name), self.entries[name]
        try:
            raw = np.empty(end - begin, np.uint8)
        except MemoryError as error:
            raise MemoryError(f"no memory for tensor {name!r} of {end - begin:,} bytes") from error
        self._file.seek(self._begin + begin)
        if self._file.readinto(raw.data) != len(raw):
            raise ValueError(f"tensor {name!r} is truncated")
        if code == "BOOL" and raw.max(initial=0) > 1:  # other bytes are no bools for NumPy
            raise ValueError(f"tensor {name!r} is damaged: a bool is {raw.max()}, expected 0 or 1")
        return raw.view(dtype).reshape(shape)

    def zeros(self, name: str) -> np.ndarray:
        """Returns an array of the dtype and shape of a tensor that takes no memory; its values are 0."""
        return np.broadcast_to(np.zeros((), self.dtype(name)), self.entries[name].shape)


def write_safetensors(file: IO[bytes], arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Writes contiguous arrays, the largest dtypes first, so that all are aligned in memory-mapped files."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        array, begin = arrays[name], end
        end += array.nbytes
        code, shape = _CODES[array.dtype.name], list(array.shape)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_BYTES:
        raise ValueError(f"can't save {len(text):,} bytes besides the tensors, the limit is {MAX_BYTES:,}")
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(arrays[name].reshape(-1).view(np.uint8).data)


def _checked_metadata(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("__metadata__ must be an object of strings")
    return metadata


def _checked_entry(name: str, entry: object) -> Entry:
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"tensor {name!r} has no dtype, shape and data_offsets") from None
    if not isinstance(code, str):
        raise ValueError(f"tensor {name!r} has dtype {code!r}")
    if not isinstance(shape, list) or not all(is_count(n) and n < 2**63 for n in shape):
        raise ValueError(f"tensor {name!r} has shape {shape!r}")
    if not is_count(begin) or not is_count(end, begin):
        raise ValueError(f"tensor {name!r} has data_offsets {[begin, end]}")
    expected = math.prod(shape) * _SIZES.get(code, 0)
    if code in DTYPES and end - begin != expected:
        raise ValueError(
            f"tensor {name!r} of dtype {code} and shape {shape} has {expected:,} bytes, the file has "
            f"{end - begin:,}"
        )
    return Entry(code, tuple(shape), begin, end)


def _check_offsets(entries: dict[str, Entry], size: int) -> None:
    """Raises ValueError if the tensors don't fill the data without gaps: two might share memory."""
    ranges = [(0, 0), *sorted((entry.begin, entry.end) for entry in entries.values()), (size, size)]
    for (_, end), (begin, _) in pairwise(ranges):
        if begin != end:
            raise ValueError(f"a tensor ends at byte {end:,} of {size:,}, the next one begins at {begin:,}")


def _not_safetensors(start: bytes) -> str:
    """Returns the message for a file with these first bytes."""
    if start[:2] in (b"PK", b"\x80\x02"):
        return (
            "it is a pickle, as torch.save writes it. Loading a pickle can execute arbitrary code, so "
            "it is not supported: in PyTorch, save the tensors with safetensors.torch.save_file"
        )
    return "it is not a safetensors file"
