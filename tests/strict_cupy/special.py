"""Functions whose values or arguments differ from NumPy's: what to run, on NumPy arrays, in their place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import graph

COMPUTE: dict[str, Callable] = {}


def _for(*names: str) -> Callable:
    def register(function: Callable) -> Callable:
        COMPUTE.update(dict.fromkeys(names, function))
        return function

    return register


# Half precision is summed in float32, then rounded once.


def _summed_in_float32(reduce: Callable) -> Callable:
    @functools.wraps(reduce)  # for its signature
    def function(a, axis=None, dtype=None, out=None, keepdims=False, **options):
        if dtype is None and a.dtype == np.float16:
            dtype = np.float32
        result = reduce(a, axis=axis, dtype=dtype, keepdims=bool(keepdims), **options)
        result = np.asarray(result, np.float16 if a.dtype == np.float16 and dtype == np.float32 else None)
        return result if out is None else _into(out, result)

    return function


def _into(out: np.ndarray, result: np.ndarray) -> np.ndarray:
    if out.shape != result.shape:
        raise ValueError(f"Out shape is mismatched: expected {result.shape}, got {out.shape}")
    np.copyto(out, result, casting="unsafe")
    return out


COMPUTE["ptp"] = np.ptp
for _name in ("sum", "prod", "mean", "nansum", "nanprod", "nanmean", "var", "std", "nanvar", "nanstd"):
    COMPUTE[_name] = _summed_in_float32(getattr(np, _name))


def _arg_extreme(search: Callable) -> Callable:
    def function(a, axis=None, dtype=None, out=None, keepdims=False):
        result = np.asarray(search(a, axis=axis, keepdims=keepdims), dtype)
        return result if out is None else _into(out, result)

    return function


for _name in ("argmax", "argmin", "nanargmax", "nanargmin"):
    COMPUTE[_name] = _arg_extreme(getattr(np, _name))


# Indices out of range wrap around instead of raising.


@_for("take")
def take(a, indices, axis=None, out=None):
    indices = np.asarray(indices, None if np.size(indices) else np.intp)
    mode = "wrap" if a.size else "clip"  # NumPy counts from -1 up to an empty array's size forever
    result = np.take(a, indices.astype(np.intp), axis, mode=mode)
    if out is None:
        return result
    if out.dtype != a.dtype:
        raise TypeError(f"Output dtype mismatch: expected {a.dtype}, got {out.dtype}")
    return _into(out, np.asarray(result))


@_for("take_along_axis")
def take_along_axis(a, indices, axis):
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    length = a.size if axis is None else a.shape[axis]
    return np.take_along_axis(a, indices.astype(np.intp) % max(length, 1), axis)


@_for("put")
def put(a, indices, values, mode="wrap"):
    np.put(a, indices, values, mode)


# Sorting is always stable, and says so.


def _check_kind(kind: Any) -> None:
    if kind not in (None, "stable"):
        raise ValueError(f"kind can only be None or 'stable', got {kind!r}")


@_for("sort")
def sort(a, axis=-1, kind=None):
    _check_kind(kind)
    return np.sort(a, axis, kind="stable")


@_for("argsort")
def argsort(a, axis=-1, kind=None):
    _check_kind(kind)
    return np.argsort(a, axis, kind="stable")


@_for("searchsorted")
def searchsorted(a, v, side="left", sorter=None):
    return np.asarray(np.searchsorted(a, v, side, sorter))


# Results that NumPy gives as Python numbers are 0-d arrays.


def _as_array(compute: Callable) -> Callable:
    @functools.wraps(compute)
    def function(*args, **kwargs):
        return np.asarray(compute(*args, **kwargs))

    return function


for _name in ("count_nonzero", "allclose", "array_equal", "array_equiv"):
    COMPUTE[_name] = _as_array(getattr(np, _name))


# Arguments that CuPy handles in its own way.


@_for("where")
def where(condition, x=None, y=None):
    if not hasattr(condition, "astype"):  # a NumPy scalar has it, too
        raise TypeError(f"where: the condition must be a cupy.ndarray, got {type(condition)}")
    if isinstance(x, (list, tuple)) or isinstance(y, (list, tuple)):
        raise TypeError(f"where: expected cupy.ndarrays or numbers, got {type(x)} and {type(y)}")
    if x is None and y is None:
        return np.nonzero(condition)
    if x is None or y is None:
        raise ValueError("where: give both x and y, or neither")
    chosen = np.where(condition, x, y)
    return chosen.astype(np.float32) if chosen.dtype.char == "E" else chosen  # it has no loop for bfloat16


@_for("einsum")
def einsum(*operands, **kwargs):
    unknown = set(kwargs) - {"dtype", "optimize"}
    if unknown:
        raise TypeError(f"einsum: did not understand {sorted(unknown)}")
    if sum(isinstance(x, np.ndarray) for x in operands) > 1:
        graph.refuse_libraries()  # products of two arrays are products of matrices
    return np.einsum(*operands, **kwargs)


@_for("isin", "in1d")
def isin(element, test_elements, assume_unique=False, invert=False):
    for x in (element, test_elements):
        if not isinstance(x, np.ndarray):
            raise TypeError(f"isin: expected cupy.ndarray, got {type(x)}")
    return np.isin(element, test_elements, assume_unique, invert)


@_for("matmul")
def matmul(*args, out=None, **kwargs):
    for x in args:
        if not isinstance(x, np.ndarray):
            raise TypeError(f"matmul: expected cupy.ndarray, got {type(x)}")
    return np.matmul(*args, out=out, **kwargs)


@_for("broadcast_to")
def broadcast_to(array, shape, subok=False):
    view = np.broadcast_to(array, shape)
    view.flags.writeable = array.flags.writeable  # CuPy's is not read-only
    return view


@_for("diagonal")
def diagonal(a, offset=0, axis1=0, axis2=1):
    view = np.diagonal(a, offset, axis1, axis2)
    view.flags.writeable = a.flags.writeable  # CuPy's is not read-only
    return view


@_for("diag")
def diag(v, k=0):
    return diagonal(v, k) if v.ndim == 2 else np.diag(v, k)


@_for("pad")
def pad(array, pad_width, mode="constant", **kwargs):
    if not callable(mode) and mode == "median":
        raise ValueError("mode 'median' is not supported")
    return np.pad(array, pad_width, mode, **kwargs)


@_for("sliding_window_view")
def sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    if writeable:
        raise NotImplementedError("Writeable views are not supported.")
    # CuPy's is not read-only.
    return np.lib.stride_tricks.sliding_window_view(x, window_shape, axis, writeable=x.flags.writeable)


@_for("bincount")
def bincount(x, weights=None, minlength=None):
    return np.bincount(x, weights, minlength or 0)


# Names that NumPy has dropped, and functions that NumPy never had.

for _name, _new in {
    "alltrue": "all", "sometrue": "any", "product": "prod", "cumproduct": "cumprod", "round_": "round",
    "row_stack": "vstack",
}.items():
    COMPUTE[_name] = COMPUTE.get(_new) or getattr(np, _new)

SPECIAL_FUNCTIONS = {  # cupyx.scipy.special
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "gammaln": np.vectorize(math.lgamma, otypes=[float]),
    "expit": lambda x: 1 / (1 + np.exp(-x)),
    "ndtr": np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=[float]),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
