"""Ufuncs of meta arrays: shapes are broadcast, dtypes and memory order are those of samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .array import OPERANDS, MetaArray, from_result
from .cache import call
from .indexing import setitem
from .layout import Shape, cut, sampled


@functools.lru_cache(maxsize=1024)
def _rule(ufunc: np.ufunc, method: str) -> Callable:
    return functools.partial(call_ufunc, ufunc, method)


def _array_ufunc(self, ufunc, method, *inputs, **kwargs):
    others = len(kwargs) > ("out" in kwargs)  # a signature casts numbers, which raises for some values
    return call(_rule(ufunc, method), inputs, kwargs, by_value=others)


MetaArray.__array_ufunc__ = _array_ufunc


def call_ufunc(ufunc: np.ufunc, method: str, *inputs: object, **kwargs: Any) -> Any:
    """Returns `getattr(ufunc, method)(*inputs, **kwargs)`: new arrays, or those in `out`."""
    if not all([isinstance(x, OPERANDS) for x in inputs]):
        return NotImplemented  # a Tensor's or an Array's call
    if method == "at":
        return at(ufunc, *inputs, **kwargs)
    rule = _METHODS.get(method)
    if rule is None:
        raise NotImplementedError(f"np.{ufunc.__name__}.{method} has no rule for meta arrays")
    outs = tuple([x for x in kwargs.get("out", ()) if x is not None])
    shape = rule(ufunc, *inputs, **{name: v for name, v in kwargs.items() if name not in ("out", "dtype")})
    given = {name: sampled(value) for name, value in kwargs.items() if name != "out"}
    if outs:
        given["out"] = tuple([np.empty(cut(x.shape), x.dtype) for x in outs])
        _check_out(outs, shape)
    with np.errstate(all="ignore"):
        result = getattr(ufunc, method)(*sampled(inputs), **given)
    if outs:
        return outs[0] if len(outs) == 1 else outs
    if isinstance(result, tuple):
        return from_result(result, [shape] * len(result))
    return None if result is None else from_result(result, shape)


def _check_out(outs: tuple[MetaArray, ...], shape: Shape) -> None:
    for x in outs:
        if not isinstance(x, MetaArray):
            raise TypeError(f"a meta array can't be written to one of {type(x).__name__}: it has no data")
        if np.broadcast_shapes(x.shape, shape) != x.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {x.shape} doesn't match {shape}"
            )


def _called(ufunc: np.ufunc, *inputs: object, where: object = True, **kwargs: object) -> Shape:
    if ufunc.signature is not None:
        if ufunc is not np.matmul:
            raise NotImplementedError(f"np.{ufunc.__name__} has no rule for meta arrays")
        return product_shape(np.shape(inputs[0]), np.shape(inputs[1]))
    return np.broadcast_shapes(*map(np.shape, inputs), np.shape(where))


def product_shape(x: Shape, y: Shape) -> Shape:
    """Returns the shape of np.matmul."""
    if not x or not y or x[-1] != y[max(len(y) - 2, 0)]:
        raise ValueError(f"matmul: Input operands have a mismatch: shapes {x} and {y}")
    rows, columns = x[-2:-1], y[-1:] if len(y) > 1 else ()
    return (*np.broadcast_shapes(x[:-2], y[:-2]), *rows, *columns)


def _reduced(
    ufunc: np.ufunc, x: object, axis: object = 0, *rest: object, keepdims: bool = False, **kwargs: object
) -> Shape:
    return reduced_shape(np.shape(x), axis, keepdims)


def reduced_shape(shape: Shape, axis: int | Sequence[int] | None, keepdims: bool = False) -> Shape:
    """Returns the shape of a reduction over the axes: one, several, None for all."""
    axes = axes_of(axis, len(shape))
    if keepdims is True:
        return tuple([1 if d in axes else n for d, n in enumerate(shape)])
    return tuple([n for d, n in enumerate(shape) if d not in axes])


def axes_of(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Returns the axes as numbers from 0 on; None means all."""
    if axis is None:
        return tuple(range(ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim)


def _accumulated(ufunc: np.ufunc, x: object, *rest: object, **kwargs: object) -> Shape:
    return np.shape(x)


def _outer(ufunc: np.ufunc, x: object, y: object, **kwargs: object) -> Shape:
    return (*np.shape(x), *np.shape(y))


_METHODS = {"__call__": _called, "reduce": _reduced, "accumulate": _accumulated, "outer": _outer}


def at(ufunc: np.ufunc, x: MetaArray, index: object, *values: object) -> None:
    """Checks the arguments of `ufunc.at`."""
    if len(values) != ufunc.nin - 1:
        raise TypeError(f"np.{ufunc.__name__}.at of {len(values)} values")
    for value in values:
        setitem(x, index, value)
    check_cast(ufunc(*[np.ones((), np.result_type(v)) for v in (x, *values)]), x, "same_kind")


def check_cast(y: object, x: MetaArray, casting: str) -> None:
    """Raises TypeError if NumPy wouldn't write `y` to `x`."""
    is_number = isinstance(y, (bool, int, float, complex))
    dtype = np.result_type(y, x.dtype) if is_number else np.result_type(y)
    if not np.can_cast(dtype, x.dtype, casting):
        raise TypeError(f"cannot cast from {dtype} to {x.dtype} according to the rule {casting!r}")
