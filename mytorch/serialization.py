"""
Saving and loading objects as safetensors files: tensors as data, the rest as JSON in the header.

    mytorch.save({"model": model.state_dict(), "step": 2000}, "checkpoint.safetensors")
    checkpoint = mytorch.load("checkpoint.safetensors")

Nothing is unpickled, so loading an untrusted file cannot execute code. Every safetensors library can read
the tensors, and a file of another library (PyTorch's, Hugging Face's) loads as a dict of Tensors.

JSON types are stored as JSON, all other types as `{"$kind": …}`:

    {"$tensor": name}  {"$array": name}  {"$ndarray": name}  {"$scalar": name}     a tensor of the file
    {"$tuple": […]}  {"$dict": [[key, value], …]}  {"$float": "nan"}  {"$complex": [re, im]}

Source: the format, https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from .backends.address import address_of
from .backends.device import CPU, RawArray, as_device, is_raw, move
from .core.array import Array, wrap
from .core.tensor import Size, Tensor, from_raw, raw_of
from .utils.atomic import atomic_write
from .utils.reading import check_depth, open_regular, parse_json
from .utils.safetensors_file import DTYPES, SafetensorsFile, write_safetensors

_KEY = "mytorch"  # the metadata entry that contains the JSON
_VERSION = 1


@dataclass(frozen=True)
class WithMetadata:
    """An object that `save` writes with further entries of the file's metadata, which `load` ignores."""

    obj: object
    metadata: dict[str, str]


def save(
    obj: object, f: str | os.PathLike | IO[bytes], pickle_module: object = None, pickle_protocol: int = 2
) -> None:
    """Saves an object to a file. The write is atomic: on an error, an existing file is unchanged.

    Args:
        obj: dicts, lists and tuples of Tensors, Arrays, NumPy arrays and scalars, numbers, strings and None.
            Keys may be strings, numbers and None. Tensors that share their memory, shape and strides are
            stored once. Devices and `requires_grad` are not stored.
        f: path of the file, or a binary file that is open for writing; nothing of that is atomic.
        pickle_module, pickle_protocol: ignored: nothing is pickled.

    Raises:
        TypeError: `obj` contains an object of another type; the message contains its path in `obj`.
        ValueError: a container contains itself, or the JSON is larger than 100 MB, the limit of the format.
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `f` is a folder.
        OSError: writing failed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mytorch.save({"x": mytorch.ones(2)}, f"{folder}/x.pt")
    ...     print(mytorch.load(f"{folder}/x.pt"))
    {'x': tensor([1.00000 1.00000])}
    """
    obj, entries = (obj.obj, obj.metadata) if isinstance(obj, WithMetadata) else (obj, {})
    writer, is_file = _Writer(), hasattr(f, "write")
    path = None if is_file else _path(f)
    try:
        content = writer.encode(obj, ())
        check_depth(content)
    except RecursionError:
        raise ValueError("can't save it: it is nested too deeply") from None
    structure = json.dumps({"version": _VERSION, "object": content})
    # Hugging Face's loaders require a format; safetensors' loaders find tied tensors by the aliases.
    metadata = {**writer.aliases, **entries, "format": "pt", _KEY: structure}
    if is_file:
        write_safetensors(f, writer.arrays, metadata)
        return
    with atomic_write(path) as partial:
        try:
            with open(partial, "wb") as file:
                write_safetensors(file, writer.arrays, metadata)
        except OSError as error:
            raise OSError(error.errno, f"can't write {path}: {error.strerror or error}") from error


def load(
    f: str | os.PathLike | IO[bytes], map_location: Any = None, pickle_module: object = None, *,
    weights_only: bool = True, mmap: bool | None = None,
) -> Any:
    """Returns an object saved by `save`, or the dict of Tensors of any other safetensors file.

    Args:
        f: path of the file, or a binary file that is open for reading: it is read from where it stands to
            its end.
        map_location: device of the loaded tensors; the CPU if None.
        pickle_module, weights_only, mmap: ignored, since files contain no code.

    Raises:
        FileNotFoundError: the file does not exist.
        IsADirectoryError: `f` is a folder.
        OSError: `f` is a FIFO, a socket or a device.
        ValueError: the file is no safetensors file, is damaged, or contains an unsupported dtype.
        MemoryError: a tensor doesn't fit in memory.
        ImportError: the file contains bfloat16 and the package ml_dtypes is not installed.
    """
    device = as_device(map_location)
    if hasattr(f, "read"):
        return load_open(BytesIO(f.read()), getattr(f, "name", "the file"), device)
    path = _path(f)
    with open_regular(path) as file:
        return load_open(file, path, device)


def load_open(file: IO[bytes], path: str | os.PathLike, device: str = CPU, values: bool = True) -> Any:
    """Returns the object in an open file, which stands at its beginning and can seek.

    Args:
        path: names the file in errors.
        values: False reads no tensors: they are zeros that take no memory.

    Raises:
        ValueError, MemoryError, ImportError: see `load`.
    """
    try:
        reader = _Reader(SafetensorsFile(file), device, values)
        metadata = reader.file.metadata
        if _KEY in metadata:
            return reader.decode_file(metadata[_KEY])
        tensors = {name: reader.tensor(name) for name in reader.file.entries}
    except ValueError as error:
        raise ValueError(f"can't load {path}: {error}") from error
    except MemoryError as error:
        raise MemoryError(f"can't load {path}: {error or 'no memory for its header'}") from error
    tied = {alias: name for alias, name in metadata.items() if name in tensors and alias not in tensors}
    return {**tensors, **{alias: reader.tensor(name) for alias, name in tied.items()}}


class _Writer:
    """Encodes an object as JSON and collects its arrays.

    Attributes:
        arrays: name -> array, contiguous and on the CPU.
        aliases: name of a tied tensor -> name of the array that stores its values.
    """

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self.aliases: dict[str, str] = {}
        self._names: dict[tuple, str] = {}
        self._alive: list[RawArray] = []  # references to the arrays, so that no address is reused
        self._ancestors: list[int] = []  # ids of the containers around the current object

    def encode(self, x: object, keys: tuple) -> object:
        """Returns the JSON of `x`; `keys` are the keys and indices that lead to it."""
        if isinstance(x, Tensor):
            return {"$tensor": self._store(raw_of(x), keys)}
        if isinstance(x, Array):
            return {"$array": self._store(x._array, keys)}
        if is_raw(x):
            return {"$ndarray" if isinstance(x, np.ndarray) else "$array": self._store(x, keys)}
        if x is None or isinstance(x, bool):
            return x
        if isinstance(x, str):
            return str(x)
        if isinstance(x, np.generic):
            return {"$scalar": self._store(np.asarray(x), keys)}
        if isinstance(x, int):
            return int(x)
        if isinstance(x, float):
            return float(x) if math.isfinite(x) else {"$float": str(float(x))}
        if isinstance(x, complex):
            return {"$complex": [self.encode(x.real, keys), self.encode(x.imag, keys)]}
        return self._container(x, keys)

    def _container(self, x: object, keys: tuple) -> object:
        if id(x) in self._ancestors:
            raise ValueError(f"{_location(keys)}can't save a {type(x).__name__} that contains itself")
        self._ancestors.append(id(x))
        if isinstance(x, dict):
            out = self._dict(x, keys)
        elif isinstance(x, list):
            out = [self.encode(item, (*keys, i)) for i, item in enumerate(x)]
        elif type(x) in (tuple, Size):
            out = {"$tuple": [self.encode(item, (*keys, i)) for i, item in enumerate(x)]}
        else:
            hint = "; save its state_dict()" if hasattr(x, "state_dict") else ""
            raise TypeError(f"{_location(keys)}can't save a {type(x).__name__}{hint}")
        self._ancestors.pop()
        return out

    def _dict(self, x: dict, keys: tuple) -> object:
        for key in x:
            if not (key is None or type(key) in (str, int, bool, float)):
                raise TypeError(
                    f"{_location(keys)}can't save a dict with a {type(key).__name__} as key: {key!r}"
                )
        items = {key: self.encode(value, (*keys, key)) for key, value in x.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in items):
            return items
        return {"$dict": [[self.encode(key, keys), value] for key, value in items.items()]}

    def _store(self, raw: RawArray, keys: tuple) -> str:
        """Adds an array to `arrays`; returns its name in the file."""
        if raw.dtype.name not in DTYPES.values():
            raise TypeError(f"{_location(keys)}can't save an array of dtype {raw.dtype}")
        base = ".".join(map(str, keys)) or "data"
        name, number = base, 1
        while name in self.arrays or name in self.aliases or name == "__metadata__":
            number += 1
            name = f"{base}#{number}"
        address = address_of(raw)
        memory = (address, raw.shape, raw.strides, raw.dtype) if raw.size else (id(raw),)
        if memory in self._names:
            self.aliases[name] = self._names[memory]
            return self._names[memory]
        array = move(raw, CPU)
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)  # keeps 0-d arrays 0-d
        self._names[memory] = name
        self._alive.append(raw)
        return name


class _Reader:
    """Decodes the JSON of an open safetensors file and loads its tensors to a device."""

    def __init__(self, file: SafetensorsFile, device: str, values: bool):
        self.file, self.device = file, device
        self._read = file.read if values else file.zeros
        self._loaded: dict[str, Tensor] = {}

    def decode_file(self, text: str) -> Any:
        try:
            content = parse_json(text)
            version, structure = content["version"], content["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error
        if version != _VERSION:
            raise ValueError(f"its format has version {version!r}, expected version {_VERSION}")
        try:
            return self._decode(structure)
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error

    def tensor(self, name: str) -> Tensor:
        """Returns the tensor of this name; further calls return Tensors that share its memory."""
        if name in self._loaded:
            return self._loaded[name].detach()
        if name not in self.file.entries:
            raise ValueError(f"tensor {name!r} is missing")
        self._loaded[name] = from_raw(move(self._read(name), self.device))
        return self._loaded[name]

    def scalar(self, name: str) -> np.generic:
        array = move(self.tensor(name).data._array, CPU)
        if array.ndim:
            raise ValueError(f"tensor {name!r} has shape {array.shape}, expected a scalar")
        return array[()]

    def items(self, items: object) -> list:
        if not isinstance(items, list):
            raise TypeError(f"expected a list, got {type(items).__name__}")
        return [self._decode(item) for item in items]

    def mapping(self, pairs: object) -> dict:
        pairs = self.items(pairs)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise TypeError("expected pairs of keys and values")
        content = dict(pairs)
        if len(content) < len(pairs):
            raise ValueError("its header is damaged: a dict has a key twice")
        return content

    def _decode(self, x: object) -> Any:
        if isinstance(x, list):
            return self.items(x)
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
    "$scalar": _Reader.scalar,
    "$tuple": lambda reader, items: tuple(reader.items(items)),
    "$dict": _Reader.mapping,
    "$float": lambda reader, text: float(text),
    "$complex": lambda reader, parts: complex(*reader.items(parts)),
}


def _path(f: object) -> Path:
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"expected a path or a file, got {type(f).__name__}")
    return Path(f)


def _location(keys: tuple) -> str:
    """Returns where these keys lead, for the beginning of a message; "" for the object itself."""
    return "".join(["obj", *(f"[{key!r}]" for key in keys), ": "]) if keys else ""
