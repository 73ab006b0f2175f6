"""Reading the arguments `dim` and `keepdim`, which NumPy calls `axis` and `keepdims`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def canonical_dim(dim: Any, ndim: int) -> int:
    """`dim` counted from the front; a 0-d tensor has the dims 0 and -1.

    Raises:
        IndexError: there is no such dimension.
        TypeError: `dim` is not an integer.
    """
    if type(dim) is not int:
        dim = _integer(dim)
    span = max(ndim, 1)
    if not -span <= dim < span:
        allowed = f"[{-span}, {span - 1}]"
        raise IndexError(f"Dimension out of range (expected to be in range of {allowed}, but got {dim})")
    return dim if dim >= 0 else dim + span


def canonical_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """`dim`, one or several, as a sorted tuple counted from the front; None means all of them.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: the same dimension twice.
        TypeError: not integers.
    """
    if dim is None:
        return tuple(range(ndim))
    if not isinstance(dim, Iterable):
        return (canonical_dim(dim, ndim),)
    dims = sorted(canonical_dim(d, ndim) for d in dim)
    for a, b in zip(dims, dims[1:], strict=False):
        if a == b:
            raise RuntimeError(f"dim {a} appears multiple times in the list of dims {tuple(dim)}")
    return tuple(dims)


def numpy_names(function: Callable) -> Callable:
    """Let `function` take `axis` and `keepdims` for its `dim` and `keepdim`.

    Raises (when called):
        TypeError: an argument under both of its names.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs and not _NAMES.keys().isdisjoint(kwargs):
            kwargs = _renamed(kwargs, function.__name__)
        return function(*args, **kwargs)

    return call


def _renamed(kwargs: dict, name: str) -> dict:
    renamed = {}
    for key, value in kwargs.items():
        key = _NAMES.get(key, key)
        if key in renamed:
            raise TypeError(f"{name}(): got {key!r} twice, once under NumPy's name")
        renamed[key] = value
    return renamed


def _integer(dim: Any) -> int:
    if isinstance(dim, bool):
        raise TypeError(f"a dim is an int, got {dim!r}")
    try:
        return operator.index(dim)
    except TypeError:
        raise TypeError(f"a dim is an int, got {dim!r}") from None
