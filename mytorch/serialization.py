"""
Saving and loading: one safetensors file for the tensors, with everything else as JSON in its header.

    mytorch.save({"model": model.state_dict(), "step": 2000}, "checkpoint.safetensors")
    checkpoint = mytorch.load("checkpoint.safetensors")

Nothing is ever unpickled, so a file from anywhere can be opened without running what is in it. The tensors
can be read by every safetensors library, and a plain file of tensors, from PyTorch or from Hugging Face,
loads as a dict of Tensors.

In the JSON, what JSON knows stands for itself, and `{"$kind": …}` for the rest:

    {"$tensor": name}  {"$array": name}  {"$ndarray": name}  {"$scalar": name}     one of the file's tensors
    {"$tuple": […]}  {"$dict": [[key, value], …]}  {"$float": "nan"}  {"$complex": [re, im]}

Source: the format, https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .backends.device import CPU, as_device, is_raw, move
from .backends.dtypes import as_dtype
from .core.array import Array, wrap
from .core.tensor import Size, Tensor, from_raw, raw_of
from .utils.atomic import atomic_write

_KEY = "mytorch"  # the header's entry that holds the JSON
_VERSION = 1
_MAX_HEADER = 100_000_000  # bytes; readers refuse more
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "BOOL": "bool", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip


def save(obj: Any, f: str | os.PathLike) -> None:
    """Write `obj` to a file, which then is there whole or not at all.

    Args:
        obj: dicts, lists and tuples of Tensors, Arrays, NumPy arrays and scalars, numbers, strings and None.
            Keys may be strings, numbers and None. Tensors that are the same memory are stored once. Devices
            and `requires_grad` are not stored.
        f: the file's name.

    Raises:
        TypeError: there is something else in it; the message says where.
        ValueError: it contains itself, or has more than 100 MB (the format's limit) besides its tensors.
        FileNotFoundError, IsADirectoryError: the folder isn't there, or the name is a folder's.
        OSError: writing failed.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path, writer = _path(f), _Writer()
    structure = json.dumps({"version": _VERSION, "object": writer.encode(obj, ())})
    if len(structure) > _MAX_HEADER:
        raise ValueError(
            f"can't save {len(structure):,} characters besides the tensors, at most {_MAX_HEADER:,}"
        )
    # Hugging Face's loaders ask for a format, and safetensors' own find tied tensors by such entries.
    header = {**writer.aliases, "format": "pt", _KEY: structure}
    with atomic_write(path) as partial:
        try:
            save_file(writer.arrays, partial, header)
        except SafetensorError as error:
            raise OSError(f"can't write {path}: {error}") from error


def load(f: str | os.PathLike, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what `save` wrote, or a dict of Tensors from any other safetensors file.

    Args:
        f: the file's name.
        map_location: the device to load to; the CPU if None.
        weights_only: without effect, since files hold no code.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        ValueError: it isn't a safetensors file, is truncated, or has a dtype that tensors don't have.
        ImportError: it has bfloat16, and the package for it isn't there.
    """
    path, where = _path(f), as_device(map_location)
    with _opened(path) as file:
        reader = _Reader(file, where)
        header = file.metadata() or {}
        try:
            if _KEY in header:
                return reader.decode_file(header[_KEY])
            tensors = {name: reader.tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except ValueError as error:
            raise ValueError(f"can't load {path}: {error}") from error
        tied = {alias: name for alias, name in header.items() if name in tensors and alias not in tensors}
        return {**tensors, **{alias: reader.tensor(name) for alias, name in tied.items()}}


class _Writer:
    """Takes an object apart: the arrays, and the JSON that says how they belong together.

    Attributes:
        arrays: the tensors by name, contiguous and on the CPU.
        aliases: the names of entries whose tensor is stored under another name, and that name.
    """

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self.aliases: dict[str, str] = {}
        self._names: dict[tuple, str] = {}
        self._kept: list[Any] = []  # the arrays stay alive, so no address comes twice
        self._around: list[int] = []  # the containers that the walk is in

    def encode(self, x: Any, place: tuple) -> Any:
        """The JSON for `x`, which is found by these keys and indices."""
        if isinstance(x, Tensor):
            return {"$tensor": self._store(raw_of(x), place)}
        if isinstance(x, Array):
            return {"$array": self._store(x._array, place)}
        if is_raw(x):
            return {"$ndarray" if isinstance(x, np.ndarray) else "$array": self._store(x, place)}
        if x is None or isinstance(x, bool):
            return x
        if isinstance(x, str):
            return str(x)
        if isinstance(x, np.generic):
            return {"$scalar": self._store(np.asarray(x), place)}
        if isinstance(x, int):
            return int(x)
        if isinstance(x, float):
            return float(x) if math.isfinite(x) else {"$float": str(float(x))}
        if isinstance(x, complex):
            return {"$complex": [self.encode(x.real, place), self.encode(x.imag, place)]}
        return self._container(x, place)

    def _container(self, x: Any, place: tuple) -> Any:
        if id(x) in self._around:
            raise ValueError(f"{_shown(place)}: can't save a {type(x).__name__} that contains itself")
        self._around.append(id(x))
        if isinstance(x, dict):
            out = self._dict(x, place)
        elif isinstance(x, list):
            out = [self.encode(item, (*place, i)) for i, item in enumerate(x)]
        elif type(x) in (tuple, Size):
            out = {"$tuple": [self.encode(item, (*place, i)) for i, item in enumerate(x)]}
        else:
            hint = "; save its state_dict()" if hasattr(x, "state_dict") else ""
            raise TypeError(f"{_shown(place)}: can't save a {type(x).__name__}{hint}")
        self._around.pop()
        return out

    def _dict(self, x: dict, place: tuple) -> Any:
        for key in x:
            if not (key is None or type(key) in (str, int, bool, float)):
                raise TypeError(
                    f"{_shown(place)}: can't save a dict with a {type(key).__name__} as key: {key!r}"
                )
        items = {key: self.encode(value, (*place, key)) for key, value in x.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in items):
            return items
        return {"$dict": [[self.encode(key, place), value] for key, value in items.items()]}

    def _store(self, raw: Any, place: tuple) -> str:
        """Keep the array, and return its name in the file."""
        if raw.dtype.name not in _DTYPES.values():
            raise TypeError(f"{_shown(place)}: can't save an array of dtype {raw.dtype}")
        wanted = ".".join(map(str, place)) or "data"
        name, number = wanted, 1
        while name in self.arrays or name in self.aliases or name == "__metadata__":
            number += 1
            name = f"{wanted}#{number}"
        address = raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
        memory = (address, raw.shape, raw.strides, raw.dtype) if raw.size else (id(raw),)
        if memory in self._names:
            self.aliases[name] = self._names[memory]
            return self._names[memory]
        array = move(raw, CPU)
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)  # it makes 0-d arrays 1-d
        self._names[memory] = name
        self._kept.append(raw)
        return name


class _Reader:
    """Puts an object together again."""

    def __init__(self, file: Any, where: Any):
        self.file, self.where = file, where
        self._names = set(file.keys())
        self._loaded: dict[str, Tensor] = {}

    def decode_file(self, text: str) -> Any:
        try:
            content = json.loads(text)
            version, structure = content["version"], content["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error
        if version != _VERSION:
            raise ValueError(f"it has version {version!r}, this mytorch reads version {_VERSION}")
        try:
            return self._decode(structure)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name; when it is wanted again, another tensor on the same memory."""
        if name in self._loaded:
            return self._loaded[name].detach()
        if name not in self._names:
            raise ValueError(f"there is no tensor {name!r} in it")
        code = self.file.get_slice(name).get_dtype()
        if code not in _DTYPES:
            known = ", ".join(_DTYPES.values())
            raise ValueError(f"tensor {name!r} has dtype {code}, which isn't supported; there are {known}")
        as_dtype(_DTYPES[code])  # NumPy knows bfloat16 once its package is imported
        self._loaded[name] = from_raw(move(self.file.get_tensor(name), self.where))
        return self._loaded[name]

    def _decode(self, x: Any) -> Any:
        if isinstance(x, list):
            return [self._decode(item) for item in x]
        if not isinstance(x, dict):
            return x
        if len(x) != 1 or not next(iter(x)).startswith("$"):
            return {key: self._decode(value) for key, value in x.items()}
        ((kind, value),) = x.items()
        if kind not in _DECODERS:
            raise ValueError(f"unknown kind {kind!r}")
        return _DECODERS[kind](self, value)


_DECODERS = {
    "$tensor": _Reader.tensor,
    "$array": lambda reader, name: wrap(reader.tensor(name).data._array),
    "$ndarray": lambda reader, name: move(reader.tensor(name).data._array, CPU),
    "$scalar": lambda reader, name: move(reader.tensor(name).data._array, CPU)[()],
    "$tuple": lambda reader, items: tuple(map(reader._decode, items)),
    "$dict": lambda reader, items: {reader._decode(key): reader._decode(value) for key, value in items},
    "$float": lambda reader, text: float(text),
    "$complex": lambda reader, parts: complex(*map(reader._decode, parts)),
}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise IsADirectoryError(f"can't load {path}: it is a folder")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(_what_is_wrong(path, error)) from error


def _what_is_wrong(path: Path, error: Exception) -> str:
    with open(path, "rb") as file:
        start = file.read(9)
    if start[:2] in (b"PK", b"\x80\x02"):
        return (
            f"{path} is a pickle, as torch.save writes it; a pickle can run any code, so it isn't loaded. In "
            "PyTorch, write the tensors with safetensors.torch.save_file"
        )
    if start[8:9] == b"{":
        return f"{path} is a safetensors file, but truncated or damaged: {error}"
    return f"{path} is not a safetensors file: {error}"


def _path(f: Any) -> Path:
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"expected the name of a file, got {type(f).__name__}")
    return Path(f)


def _shown(place: tuple) -> str:
    return "".join(["obj", *(f"[{key!r}]" for key in place)])
