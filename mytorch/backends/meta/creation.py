"""NumPy's functions that make arrays, for meta arrays; `module` is to them what CuPy is to a GPU's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..door import thread
from ..dtypes import DTypeLike
from .array import MetaArray, from_result, like, new
from .layout import Shape, sample_of
from .random import MetaRandom


def empty(shape: int | Shape, dtype: DTypeLike = float, order: str = "C", device: None = None) -> MetaArray:
    if order not in ("C", "F"):
        raise ValueError(f"only 'C' or 'F' order is permitted, got {order!r}")
    return new(shape, float if dtype is None else dtype, order)


def full(shape: int | Shape, fill_value: object, dtype: DTypeLike = None, order: str = "C") -> MetaArray:
    dtype = np.result_type(fill_value) if dtype is None else dtype
    found = empty(shape, dtype, order)
    np.broadcast_to(fill_value, found.shape)
    return found


def empty_like(
    x: MetaArray, dtype: DTypeLike = None, order: str = "K", subok: bool = True,
    shape: int | Shape | None = None,
) -> MetaArray:
    if shape is not None or order in "CF":
        return new(x.shape if shape is None else shape, x.dtype if dtype is None else dtype, order)
    return from_result(np.empty_like(sample_of(x.layout), dtype), x.shape)


def full_like(x: MetaArray, fill_value: object, *args: object, **kwargs: object) -> MetaArray:
    return empty_like(x, *args, **kwargs)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike = None) -> MetaArray:
    start, stop = (0, start) if stop is None else (start, stop)
    count = max(math.ceil((stop - start) / step), 0)
    return new(count, np.result_type(start, stop, step) if dtype is None else dtype)


def eye(n: int, m: int | None = None, k: int = 0, dtype: DTypeLike = float) -> MetaArray:
    return new((n, n if m is None else m), dtype)


def array(x: object, dtype: DTypeLike = None, copy: bool | None = True, order: str = "K") -> MetaArray:
    """Returns a meta array of anything that NumPy makes an array of."""
    if not isinstance(x, MetaArray):
        return like(np.asarray(x, dtype))
    return x.astype(x.dtype if dtype is None else dtype, order, copy=bool(copy))


def asarray(x: object, dtype: DTypeLike = None) -> MetaArray:
    return array(x, dtype, copy=None)


def ascontiguousarray(x: object, dtype: DTypeLike = None) -> MetaArray:
    return array(x, dtype, copy=None, order="C")


def frombuffer(buffer: object, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> MetaArray:
    return like(np.frombuffer(buffer, dtype, count, offset))


CREATION = {
    "empty": empty, "zeros": empty, "ones": empty, "full": full, "empty_like": empty_like,
    "zeros_like": empty_like, "ones_like": empty_like, "full_like": full_like, "arange": arange, "eye": eye,
    "tri": eye, "array": array, "asarray": asarray, "asanyarray": asarray,
    "ascontiguousarray": ascontiguousarray, "frombuffer": frombuffer,
}


class Module:
    """NumPy, except that the functions that make arrays make meta arrays."""

    ndarray = MetaArray
    random = MetaRandom()

    def __getattr__(self, name: str) -> Any:
        function = CREATION.get(name) or getattr(np, name)
        if name not in CREATION or thread.tracer is None:
            return function
        return thread.tracer.made_by(name, function)


module = Module()
