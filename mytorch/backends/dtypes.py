"""Dtypes: their names, how they are read from an argument, and which one a mixed operation has.

A dtype is a NumPy dtype, on either device. The rules of mixing are PyTorch's, not NumPy's: a Python number or
a 0-d tensor changes the dtype of a tensor with dimensions only by its kind (bool < int < float < complex).
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc

`bfloat16` is the one that NumPy lacks: the package ml_dtypes adds it, and is imported at its first use.
NumPy gives it the kind "V", which no other dtype here has, and its own rules of mixing, which nothing here
relies on: it is computed in float32 (see `core.upcast`).
Source: https://github.com/jax-ml/ml_dtypes
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

__all__ = [
    "float16", "half", "float32", "float", "float64", "double", "complex64", "cfloat", "complex128",
    "cdouble", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "short", "int32", "int", "int64",
    "long", "bool",
    "get_default_dtype", "set_default_dtype", "promote_types", "can_cast", "finfo", "iinfo",
]

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

DTypeLike: TypeAlias = np.dtype | str | type | None  # what `as_dtype` reads; None for a default

SUPPORTED = (
    float16, float32, float64, complex64, complex128,
    uint8, uint16, uint32, uint64, int8, int16, int32, int64, bool,
)
_NAMES = {name: value for name, value in globals().items() if isinstance(value, np.dtype)}
_LISTED = ", ".join(["bfloat16", *map(str, SUPPORTED)])
_KNOWN = frozenset(SUPPORTED)
_KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
_default = float32


def __getattr__(name: str) -> np.dtype:
    """`bfloat16`, from its package."""
    if name != "bfloat16":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise ImportError(
            f"bfloat16 needs the package ml_dtypes, which can't be imported ({error}): pip install ml_dtypes"
        ) from error
    return globals().setdefault(name, np.dtype(bfloat16))


def get_default_dtype() -> np.dtype:
    """The dtype that Python floats and float factories get.

    >>> mytorch.get_default_dtype()
    dtype('float32')
    """
    return _default


def set_default_dtype(dtype: DTypeLike) -> None:
    """Set the dtype that Python floats and float factories get; it must be a real floating-point one.

    >>> mytorch.set_default_dtype(mytorch.float64)
    >>> mytorch.ones(1).dtype
    dtype('float64')
    >>> mytorch.set_default_dtype(mytorch.float32)
    """
    global _default
    dtype = as_dtype(dtype)
    if not is_floating_point(dtype):
        raise TypeError(f"set_default_dtype(): only floating-point dtypes are supported, got {dtype}")
    _default = dtype


def as_dtype(dtype: DTypeLike) -> np.dtype:
    """Read a dtype from a NumPy dtype, a name ("float" is float32) or a class (Python's float is float64).

    Raises:
        TypeError: it is none, or none of ours.
        ImportError: it is bfloat16, and the package for it isn't there.
    """
    if isinstance(dtype, np.dtype):
        found = dtype
    else:
        name = dtype.removeprefix("torch.") if isinstance(dtype, str) else None
        if name == "bfloat16":
            return __getattr__(name)
        try:
            found = _NAMES.get(name) or np.dtype(dtype if name is None else name)
        except TypeError:
            raise TypeError(f"{dtype!r} is not a dtype; there are {_LISTED}") from None
    if found not in _KNOWN and found.name != "bfloat16":
        raise TypeError(f"dtype {found} is not supported; there are {_LISTED}")
    return found


def dtype_of_number(x: object) -> np.dtype:
    """The dtype that a number has beside a tensor, Python's or NumPy's: bool, int64, or the default float."""
    if isinstance(x, (builtins.bool, np.bool)):
        return bool
    if isinstance(x, (builtins.int, np.integer)):
        return int64
    if isinstance(x, (complex, np.complexfloating)):
        return np.promote_types(_default, complex64)
    return _default


def is_floating_point(dtype: np.dtype) -> builtins.bool:
    return dtype.kind in "fV"


def is_inexact(dtype: np.dtype) -> builtins.bool:
    """Tests for floating-point and complex dtypes, whose tensors may have gradients."""
    return dtype.kind in "fcV"


def is_bfloat16(dtype: np.dtype) -> builtins.bool:
    return dtype.kind == "V"


def is_half(dtype: np.dtype) -> builtins.bool:
    """Tests for float16 and bfloat16, which are computed in float32 (see `core.upcast`)."""
    return dtype.kind in "fV" and dtype.itemsize == 2


def kind(dtype: np.dtype) -> builtins.int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex."""
    return _KIND[dtype.kind]


def promote_types(type1: DTypeLike, type2: DTypeLike) -> np.dtype:
    """The smallest dtype that PyTorch lets hold both: the higher kind wins, within a kind NumPy's rule.

    >>> mytorch.promote_types(mytorch.int64, mytorch.float16)
    dtype('float16')
    """
    a, b = as_dtype(type1), as_dtype(type2)
    if a == b:
        return a
    if is_inexact(a) or is_inexact(b):
        if kind(a) < 2:
            return b
        if kind(b) < 2:
            return a
        return np.promote_types(*(float32 if is_bfloat16(dtype) else dtype for dtype in (a, b)))
    common = np.promote_types(a, b)
    if common.kind not in "iub":
        raise TypeError(f"promotion of {a} and {b} is not defined")
    return common


def can_cast(from_: DTypeLike, to: DTypeLike) -> builtins.bool:
    """Whether a result of dtype `from_` may be written into a tensor of dtype `to`: down within a kind, as
    int64 to int8, but not to a lower kind, nor from a number to bool.

    >>> mytorch.can_cast(mytorch.float32, mytorch.int64)
    False
    """
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
            if dtype.kind == "c" and is_floating_point(result):  # a complex number doesn't upcast the floats
                dtype = complex64 if result.itemsize <= 4 else complex128
            result = promote_types(result, dtype)
    return result


def finfo(dtype: DTypeLike) -> np.finfo:
    """Limits of a floating-point dtype: `max`, `min`, `eps`, `tiny`, `bits`.

    >>> mytorch.finfo(mytorch.float32).max
    np.float32(3.4028235e+38)
    """
    dtype = as_dtype(dtype)
    if is_bfloat16(dtype):
        from ml_dtypes import finfo as limits

        return limits(dtype)
    return np.finfo(dtype)


def iinfo(dtype: DTypeLike) -> np.iinfo:
    """Limits of an integer dtype: `max`, `min`, `bits`.

    >>> mytorch.iinfo(mytorch.int8).max
    127
    """
    return np.iinfo(as_dtype(dtype))
