"""What writes to meta arrays: only the arguments are checked."""

from __future__ import annotations

import numpy as np

from .array import MetaArray
from .functions import instead_of
from .indexing import setitem


@instead_of(np.put_along_axis)
def _put_along_axis(x, indices, values, axis=-1):
    setitem(np.take_along_axis(x, indices, axis), ..., values)


@instead_of(np.copyto)
def _copyto(x, y, casting="same_kind", where=True):
    _check_cast(y, x, casting)
    setitem(x, ..., y)
    np.broadcast_to(where, x.shape)


@instead_of(np.put)
def _put(x, indices, values, mode="raise"):
    if np.result_type(indices).kind not in "iu" or mode not in ("raise", "wrap", "clip"):
        raise TypeError(f"np.put of the indices {indices!r}, mode {mode!r}")
    setitem(x, (0,) * x.ndim, np.reshape(values, -1)[:1])  # values are repeated


@instead_of(np.fill_diagonal)
def _fill_diagonal(x, value, wrap=False):
    if x.ndim < 2 or (x.ndim > 2 and len({*x.shape}) > 1):
        raise ValueError(f"np.fill_diagonal of an array of shape {x.shape}")
    setitem(x, (0,) * x.ndim, np.reshape(value, -1)[:1])


def at(ufunc: np.ufunc, x: MetaArray, index: object, *values: object) -> None:
    """Checks the arguments of `ufunc.at`."""
    if len(values) != ufunc.nin - 1:
        raise TypeError(f"np.{ufunc.__name__}.at of {len(values)} values")
    for value in values:
        setitem(x, index, value)
    _check_cast(ufunc(*[np.ones((), np.result_type(v)) for v in (x, *values)]), x, "same_kind")


def fill(x: MetaArray, value: object) -> None:
    """Checks the value of `x.fill`."""
    setitem(x, ..., np.reshape(value, ()))


def sort(x: MetaArray, axis: int = -1, kind: str | None = None) -> None:
    """Checks the arguments of `x.sort`."""
    np.sort(x, axis, kind)


def _check_cast(y: object, x: MetaArray, casting: str) -> None:
    is_number = isinstance(y, (bool, int, float, complex))
    dtype = np.result_type(y, x.dtype) if is_number else np.result_type(y)
    if not np.can_cast(dtype, x.dtype, casting):
        raise TypeError(f"cannot cast from {dtype} to {x.dtype} according to the rule {casting!r}")


MetaArray.fill, MetaArray.sort = fill, sort
