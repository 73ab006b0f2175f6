"""Dtypes: their names, how they are read from an argument, and which one a mixed operation has.

A dtype is a NumPy dtype, on either device. The rules of mixing are PyTorch's, not NumPy's: a Python number or
a 0-d tensor changes the dtype of a tensor with dimensions only by its kind (bool < int < float < complex).
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = [
    "float16", "half", "float32", "float", "float64", "double", "complex64", "cfloat", "complex128",
    "cdouble", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "short", "int32", "int", "int64",
    "long", "bool",
    "get_default_dtype", "set_default_dtype", "promote_types", "can_cast", "finfo", "iinfo",
]  # fmt: skip

float16 = half = np.dtype("float16")
float32 = float = np.dtype("float32")
float64 = double = np.dtype("float64")
complex64 = cfloat = np.dtype("complex64")
complex128 = cdouble = np.dtype("complex128")
uint8 = np.dtype("uint8")
uint16 = np.dtype("uint16")
uint32 = np.dtype("uint32")
uint64 = np.dtype("uint64")
int8 = np.dtype("int8")
int16 = short = np.dtype("int16")
int32 = int = np.dtype("int32")
int64 = long = np.dtype("int64")
bool = np.dtype("bool")

SUPPORTED = (
    float16, float32, float64, complex64, complex128,
    uint8, uint16, uint32, uint64, int8, int16, int32, int64, bool,
)  # fmt: skip
_NAMES = {name: value for name, value in globals().items() if isinstance(value, np.dtype)}
_KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_default = float32


def get_default_dtype() -> np.dtype:
    """The dtype that Python floats and float factories get."""
    return _default


def set_default_dtype(dtype: Any) -> None:
    """Set the dtype that Python floats and float factories get; it must be a real floating-point one."""
    global _default
    dtype = as_dtype(dtype)
    if dtype.kind != "f":
        raise TypeError(f"set_default_dtype(): only floating-point dtypes are supported, got {dtype}")
    _default = dtype


def as_dtype(dtype: Any) -> np.dtype:
    """Read a dtype from a NumPy dtype, a name ("float" is float32) or a class (Python's float is float64)."""
    if isinstance(dtype, np.dtype):
        found = dtype
    else:
        name = dtype.removeprefix("torch.") if isinstance(dtype, str) else None
        try:
            found = _NAMES.get(name) or np.dtype(dtype if name is None else name)
        except TypeError:
            raise TypeError(f"{dtype!r} is not a dtype; there are {', '.join(map(str, SUPPORTED))}") from None
    if found not in SUPPORTED:
        raise TypeError(f"dtype {found} is not supported; there are {', '.join(map(str, SUPPORTED))}")
    return found


def dtype_of_number(x: Any) -> np.dtype:
    """The dtype that a number has beside a tensor, Python's or NumPy's: bool, int64, or the default float."""
    if isinstance(x, (builtins.bool, np.bool)):
        return bool
    if isinstance(x, (builtins.int, np.integer)):
        return int64
    if isinstance(x, (complex, np.complexfloating)):
        return np.promote_types(_default, complex64)
    return _default


def is_floating_point(dtype: np.dtype) -> builtins.bool:
    return dtype.kind == "f"


def kind(dtype: np.dtype) -> builtins.int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex."""
    return _KIND[dtype.kind]


def promote_types(type1: Any, type2: Any) -> np.dtype:
    """The smallest dtype that PyTorch lets hold both: the higher kind wins, within a kind NumPy's rule."""
    a, b = as_dtype(type1), as_dtype(type2)
    if a == b:
        return a
    if a.kind in "fc" or b.kind in "fc":
        if kind(a) < 2:
            return b
        if kind(b) < 2:
            return a
        return np.promote_types(a, b)
    common = np.promote_types(a, b)
    if common.kind not in "iub":
        raise TypeError(f"promotion of {a} and {b} is not defined")
    return common


def can_cast(from_: Any, to: Any) -> builtins.bool:
    """Whether a result of dtype `from_` may be written into a tensor of dtype `to`: down within a kind, as
    int64 to int8, but not to a lower kind, nor from a number to bool."""
    return kind(as_dtype(from_)) <= kind(as_dtype(to))


def result_dtype(operands: Iterable[tuple[np.dtype, builtins.int]]) -> np.dtype:
    """The dtype of an operation on operands given as (dtype, rank).

    rank: 2 for an array with dimensions, 1 for a 0-d array, 0 for a Python number. A lower rank counts only
    if its kind is higher than that of all ranks above it.
    """
    best: list[np.dtype | None] = [None, None, None]
    for dtype, rank in operands:
        seen = best[rank]
        best[rank] = dtype if seen is None else promote_types(seen, dtype)
    result = None
    for dtype in reversed(best):
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif kind(dtype) > kind(result):
            if dtype.kind == "c" and result.kind == "f":  # a complex number doesn't widen the floats
                dtype = complex64 if result.itemsize <= 4 else complex128
            result = promote_types(result, dtype)
    return result


def finfo(dtype: Any) -> np.finfo:
    """Limits of a floating-point dtype: `max`, `min`, `eps`, `tiny`, `bits`."""
    return np.finfo(as_dtype(dtype))


def iinfo(dtype: Any) -> np.iinfo:
    """Limits of an integer dtype: `max`, `min`, `bits`."""
    return np.iinfo(as_dtype(dtype))
