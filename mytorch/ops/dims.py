"""Reads sizes, dims and the arguments `dim` and `keepdim`, which NumPy calls `axis` and `keepdims`; fits the
results of reductions to the shape of the input again."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..backends.device import RawArray, is_raw
from ..backends.door import forces
from ..core.op import index_of
from ..core.overriding import overriding

Dims: TypeAlias = int | Sequence[int] | None  # one dim, several, or all

_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def canonical_dim(dim: int, ndim: int) -> int:
    """`dim` counted from the front; a 0-d tensor has the dims 0 and -1.

    Raises:
        IndexError: the dimension is out of range.
        TypeError: `dim` is not an integer.
    """
    if type(dim) is not int:
        dim = _integer(dim)
    span = max(ndim, 1)
    if not -span <= dim < span:
        allowed = f"[{-span}, {span - 1}]"
        raise IndexError(f"Dimension out of range (expected to be in range of {allowed}, but got {dim})")
    return dim if dim >= 0 else dim + span


def canonical_dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """`dim`, one or several, as a sorted tuple counted from the front; None means all of them.

    Raises:
        IndexError: the dimension is out of range.
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


def as_int(x: object) -> int:
    """Returns an int, also of an array without dims that holds one: CuPy's have no `__index__`.

    Raises:
        TypeError: something else.
    """
    if type(x) is not int and is_raw(x) and x.ndim == 0 and x.dtype.kind in "iu":
        return int(x)
    return index_of(x)


def fixed_size(x: Any) -> Any:
    """Returns a number of which an array with elements is computed. A size of a traced function is noted
    as one that stays the same: nothing tells what NumPy makes of it."""
    return x.pinned() if forces and hasattr(type(x), "pinned") else x


def as_sizes(args: object, name: str) -> tuple[int, ...]:
    """The ints in `(2, 3)` or `((2, 3),)`, or one int."""
    if type(args) is not tuple and not isinstance(args, Sequence):
        args = (args,)
    elif len(args) == 1 and type(args[0]) is not int and isinstance(args[0], Sequence):
        args = args[0]
    try:
        return tuple(map(index_of, args))
    except TypeError:
        return _ints(args, name)


def _ints(args: Sequence, name: str) -> tuple[int, ...]:
    """Returns the ints, some of which may be arrays on a GPU."""
    try:
        return tuple(map(as_int, args))
    except TypeError:
        raise TypeError(f"{name}(): expected ints, got {args!r}") from None


def dims_in_order(dims: int | Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """The dims, one or several, in the order given, counted from the front.

    Raises:
        IndexError: the dim is out of range.
        RuntimeError: one dim twice.
    """
    found = tuple([canonical_dim(d, ndim) for d in as_sizes((dims,), name)])
    if len(set(found)) != len(found):
        raise RuntimeError(f"{name}(): a dim appears multiple times in the list of dims {list(found)}")
    return found


def reduction_axes(dim: Dims, ndim: int) -> tuple[int, ...] | None:
    """The dims to reduce as NumPy's `axis`; None for all of them, which `dim=()` also means."""
    axes = canonical_dims(dim, ndim)
    return None if len(axes) >= ndim or not axes else axes


def count(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> int:
    """Returns the number of elements that are reduced to one."""
    return math.prod(shape if axes is None else [shape[a] for a in axes])


def expand_reduced(g: RawArray, axes: tuple[int, ...] | None, keepdim: bool) -> RawArray:
    """`g` with the reduced dims back, of size 1, so that it broadcasts against the input."""
    return g if keepdim or axes is None else np.expand_dims(g, axes)


def squeeze_reduced(y: RawArray, axes: tuple[int, ...] | None, keepdim: bool) -> RawArray:
    """`y`, which has its reduced dims of size 1, without them."""
    return y if keepdim else np.squeeze(y, axis=axes)


def numpy_names(function: Callable) -> Callable:
    """Makes `function` take `axis` and `keepdims` for its `dim` and `keepdim`, and `input` for its first.

    Raises (when called):
        TypeError: an argument under both of its names; `keepdim` is no bool, as in `x.sum(0, 1)`.
    """
    code = inspect.unwrap(function).__code__
    names = code.co_varnames[: code.co_argcount]
    place = names.index("keepdim") if "keepdim" in names else sys.maxsize

    @functools.wraps(function)
    def call(*args, **kwargs):
        if overriding and (answer := overriding.dispatch(call, args, kwargs)) is not NotImplemented:
            return answer
        if kwargs and not _NAMES.keys().isdisjoint(kwargs):
            kwargs = _renamed(kwargs, function.__name__)
        keepdim = args[place] if len(args) > place else kwargs.get("keepdim", False)
        if keepdim is not False and not isinstance(keepdim, (bool, np.bool)):
            raise TypeError(f"{function.__name__}(): keepdim must be a bool, got {keepdim!r}")
        if "input" in kwargs:
            args = (kwargs.pop("input"), *args)
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


def _integer(dim: object) -> int:
    if isinstance(dim, bool):
        raise TypeError(f"a dim is an int, got {dim!r}")
    try:
        return as_int(dim)
    except TypeError:
        raise TypeError(f"a dim is an int, got {dim!r}") from None
