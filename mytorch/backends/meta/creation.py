"""NumPy's functions that make arrays, for meta arrays; `module` is to them what CuPy is to a GPU's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import thread
from .array import MetaArray, from_result, like, new
from .layout import sample_of
from .random import MetaRandom


def empty(shape: Any, dtype: Any = float, order: str = "C") -> MetaArray:
    return new(shape, float if dtype is None else dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> MetaArray:
    return new(shape, np.result_type(fill_value) if dtype is None else dtype, order)


def empty_like(
    x: MetaArray, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> MetaArray:
    if shape is not None or order in "CF":
        return new(x.shape if shape is None else shape, x.dtype if dtype is None else dtype, order)
    return from_result(np.empty_like(sample_of(x.layout), dtype), x.shape)


def full_like(x: MetaArray, fill_value: Any, *args: Any, **kwargs: Any) -> MetaArray:
    return empty_like(x, *args, **kwargs)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> MetaArray:
    start, stop = (0, start) if stop is None else (start, stop)
    count = max(math.ceil((stop - start) / step), 0)
    return new(count, np.result_type(start, stop, step) if dtype is None else dtype)


def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = float) -> MetaArray:
    return new((n, n if m is None else m), dtype)


def array(x: Any, dtype: Any = None, copy: bool | None = True, order: str = "K") -> MetaArray:
    """Returns a meta array of anything that NumPy makes an array of."""
    if not isinstance(x, MetaArray):
        return like(np.asarray(x, dtype))
    return x.astype(x.dtype if dtype is None else dtype, order, copy=bool(copy))


def asarray(x: Any, dtype: Any = None) -> MetaArray:
    return array(x, dtype, copy=None)


def ascontiguousarray(x: Any, dtype: Any = None) -> MetaArray:
    return array(x, dtype, copy=None, order="C")


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> MetaArray:
    return like(np.frombuffer(buffer, dtype, count, offset))


CREATION = {
    "empty": empty, "zeros": empty, "ones": empty, "full": full, "empty_like": empty_like,
    "zeros_like": empty_like, "ones_like": empty_like, "full_like": full_like, "arange": arange, "eye": eye,
    "tri": eye, "array": array, "asarray": asarray, "asanyarray": asarray,
    "ascontiguousarray": ascontiguousarray, "frombuffer": frombuffer,
}  # fmt: skip


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
