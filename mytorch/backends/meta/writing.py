"""What writes to meta arrays: only the arguments are checked."""

from __future__ import annotations

import numpy as np

from .array import MetaArray
from .cache import cached
from .functions import instead_of
from .indexing import setitem
from .ufuncs import check_cast


@instead_of(np.put_along_axis)
def _put_along_axis(x, indices, values, axis=-1):
    setitem(np.take_along_axis(x, indices, axis), ..., values)


@instead_of(np.copyto)
def _copyto(x, y, casting="same_kind", where=True):
    check_cast(y, x, casting)
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


def fill(x: MetaArray, value: object) -> None:
    """Checks the value of `x.fill`."""
    setitem(x, ..., np.reshape(value, ()))


def sort(x: MetaArray, axis: int = -1, kind: str | None = None) -> None:
    """Checks the arguments of `x.sort`."""
    np.sort(x, axis, kind)


MetaArray.fill, MetaArray.sort = cached(fill), cached(sort)
