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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .backends.device import CPU, as_device, is_raw, move
from .backends.dtypes import as_dtype
from .core.array import Array, wrap
from .core.tensor import Size, Tensor, from_raw, raw_of
from .utils.atomic import atomic_write

_KEY = "mytorch"  # the metadata entry that contains the JSON
_VERSION = 1
_MAX_HEADER = 100_000_000  # bytes: the limit of the format
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "C64": "complex64",
    "BOOL": "bool", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip


def save(
    obj: Any, f: str | os.PathLike | IO[bytes], pickle_module: Any = None, pickle_protocol: int = 2
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
    from safetensors import SafetensorError
    from safetensors.numpy import save as save_bytes
    from safetensors.numpy import save_file

    writer, is_file = _Writer(), hasattr(f, "write")
    path = None if is_file else _path(f)
    structure = json.dumps({"version": _VERSION, "object": writer.encode(obj, ())})
    if len(structure) > _MAX_HEADER:
        raise ValueError(
            f"can't save {len(structure):,} characters besides the tensors, the limit is {_MAX_HEADER:,}"
        )
    # Hugging Face's loaders require a format; safetensors' loaders find tied tensors by the aliases.
    header = {**writer.aliases, "format": "pt", _KEY: structure}
    if is_file:
        f.write(save_bytes(writer.arrays, header))
        return
    with atomic_write(path) as partial:
        try:
            save_file(writer.arrays, partial, header)
        except SafetensorError as error:
            raise OSError(f"can't write {path}: {error}") from error


def load(
    f: str | os.PathLike | IO[bytes], map_location: Any = None, pickle_module: Any = None, *,
    weights_only: bool = True, mmap: bool | None = None,
) -> Any:  # fmt: skip
    """Returns an object saved by `save`, or the dict of Tensors of any other safetensors file.

    Args:
        f: path of the file, or a binary file that is open for reading: it is read from where it stands to
            its end.
        map_location: device of the loaded tensors; the CPU if None.
        pickle_module, weights_only, mmap: ignored, since files contain no code.

    Raises:
        FileNotFoundError: the file does not exist.
        IsADirectoryError: `f` is a folder.
        ValueError: the file is no safetensors file, is truncated, or contains an unsupported dtype.
        ImportError: the file contains bfloat16 and the package ml_dtypes is not installed.
    """
    device = as_device(map_location)
    if hasattr(f, "read"):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:  # safetensors reads metadata from paths only
            path = Path(folder) / "file"
            path.write_bytes(f.read())
            return load(path, device)
    path = _path(f)
    with _open(path) as file:
        reader = _Reader(file, device)
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
    """Encodes an object as JSON and collects its arrays.

    Attributes:
        arrays: name -> array, contiguous and on the CPU.
        aliases: name of a tied tensor -> name of the array that stores its values.
    """

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self.aliases: dict[str, str] = {}
        self._names: dict[tuple, str] = {}
        self._alive: list[Any] = []  # references to the arrays, so that no address is reused
        self._ancestors: list[int] = []  # ids of the containers around the current object

    def encode(self, x: Any, keys: tuple) -> Any:
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

    def _container(self, x: Any, keys: tuple) -> Any:
        if id(x) in self._ancestors:
            raise ValueError(f"{_location(keys)}: can't save a {type(x).__name__} that contains itself")
        self._ancestors.append(id(x))
        if isinstance(x, dict):
            out = self._dict(x, keys)
        elif isinstance(x, list):
            out = [self.encode(item, (*keys, i)) for i, item in enumerate(x)]
        elif type(x) in (tuple, Size):
            out = {"$tuple": [self.encode(item, (*keys, i)) for i, item in enumerate(x)]}
        else:
            hint = "; save its state_dict()" if hasattr(x, "state_dict") else ""
            raise TypeError(f"{_location(keys)}: can't save a {type(x).__name__}{hint}")
        self._ancestors.pop()
        return out

    def _dict(self, x: dict, keys: tuple) -> Any:
        for key in x:
            if not (key is None or type(key) in (str, int, bool, float)):
                raise TypeError(
                    f"{_location(keys)}: can't save a dict with a {type(key).__name__} as key: {key!r}"
                )
        items = {key: self.encode(value, (*keys, key)) for key, value in x.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in items):
            return items
        return {"$dict": [[self.encode(key, keys), value] for key, value in items.items()]}

    def _store(self, raw: Any, keys: tuple) -> str:
        """Adds an array to `arrays`; returns its name in the file."""
        if raw.dtype.name not in _DTYPES.values():
            raise TypeError(f"{_location(keys)}: can't save an array of dtype {raw.dtype}")
        base = ".".join(map(str, keys)) or "data"
        name, number = base, 1
        while name in self.arrays or name in self.aliases or name == "__metadata__":
            number += 1
            name = f"{base}#{number}"
        address = raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
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

    def __init__(self, file: Any, device: str):
        self.file, self.device = file, device
        self._names = set(file.keys())
        self._loaded: dict[str, Tensor] = {}

    def decode_file(self, text: str) -> Any:
        try:
            content = json.loads(text)
            version, structure = content["version"], content["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error
        if version != _VERSION:
            raise ValueError(f"its format has version {version!r}, expected version {_VERSION}")
        try:
            return self._decode(structure)
        except (KeyError, TypeError) as error:
            raise ValueError(f"its header is damaged: {error!r}") from error

    def tensor(self, name: str) -> Tensor:
        """Returns the tensor of this name; further calls return Tensors that share its memory."""
        if name in self._loaded:
            return self._loaded[name].detach()
        if name not in self._names:
            raise ValueError(f"tensor {name!r} is missing")
        code = self.file.get_slice(name).get_dtype()
        if code not in _DTYPES:
            known = ", ".join(_DTYPES.values())
            raise ValueError(
                f"tensor {name!r} has dtype {code}, which is not supported; supported are {known}"
            )
        as_dtype(_DTYPES[code])  # imports ml_dtypes, which registers bfloat16 with NumPy
        self._loaded[name] = from_raw(move(self.file.get_tensor(name), self.device))
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
def _open(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise IsADirectoryError(f"can't load {path}: it is a folder")
    if not path.exists():
        raise FileNotFoundError(f"can't load {path}: no such file")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(_format_error(path, error)) from error


def _format_error(path: Path, error: Exception) -> str:
    """Returns the message for a file that safetensors can't read, by the first bytes of the file."""
    with open(path, "rb") as file:
        start = file.read(9)
    if start[:2] in (b"PK", b"\x80\x02"):
        return (
            f"{path} is a pickle, as torch.save writes it. Loading a pickle can execute arbitrary code, so "
            "it is not supported: in PyTorch, save the tensors with safetensors.torch.save_file"
        )
    if start[8:9] == b"{":
        return f"{path} is a safetensors file, but truncated or damaged: {error}"
    return f"{path} is not a safetensors file: {error}"


def _path(f: Any) -> Path:
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"expected a path or a file, got {type(f).__name__}")
    return Path(f)


def _location(keys: tuple) -> str:
    return "".join(["obj", *(f"[{key!r}]" for key in keys)])
