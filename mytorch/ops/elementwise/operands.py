"""Helpers of element-wise ops: refused dtypes, factors, and the gradient 0."""

from __future__ import annotations

import numpy as np

from ...backends import dtypes
from ...backends.device import RawArray, is_raw
from ...core.op import NUMBERS, stands_for_number
from ..bounds import require_all
from ..scalars import Number, without_dims


def zero_gradient(g: RawArray) -> RawArray:
    """The gradient of a function that is flat almost everywhere."""
    return np.zeros_like(g)


def dtype_of(*operands: RawArray | Number) -> np.dtype:
    """The dtype of promoted operands: that of the first which isn't a Python number."""
    return next(x.dtype for x in operands if hasattr(x, "dtype"))


def refuse(kinds: str, name: str, *operands: RawArray | Number) -> None:
    """Raises NotImplementedError if the promoted operands have a dtype of these kinds: "b", "iu", "f"."""
    dtype = dtype_of(*operands)
    if dtype.kind in kinds:
        raise NotImplementedError(f"{name}(): not implemented for dtype {dtype}")


def check_divisor(x: RawArray | Number, y: RawArray | Number, name: str) -> None:
    """Raises if integers are divided by zero, except on a GPU, where looking at values would mean waiting."""
    if dtype_of(x, y).kind not in "iu" or not np.size(x):
        return
    text = f"{name}(): ZeroDivisionError: an integer was divided by zero"
    if type(y) is np.ndarray:  # the faster way
        if not np.all(y):
            raise RuntimeError(text)
    elif is_raw(y):
        require_all(np.not_equal(y, 0), text, waits=False)
    elif not y:
        raise RuntimeError(text)


def factor(value: Number, dtype: np.dtype, name: str, argument: str = "alpha") -> Number:
    """The number, also of a 0-d tensor, that an operand is multiplied by, for a result of this dtype.

    Raises:
        RuntimeError: the result's dtype can't hold such a number: a fraction for integers, a bool else.
        TypeError: it is no number.
    """
    if stands_for_number(value):
        return value.noted("factor", dtype, name, argument)
    value = without_dims(value)
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): {argument} must be a number, got {type(value).__name__}")
    own = dtypes.dtype_of_number(value)
    if (own == np.bool) > (dtype == np.bool) or dtypes.kind(own) > max(dtypes.kind(dtype), 1):
        raise RuntimeError(f"{name}(): {argument}={value!r} doesn't fit a result of dtype {dtype}")
    if dtype.kind in "biu":
        return np.asarray(value).astype(dtype)[()]
    return value.item() if isinstance(value, np.generic) else value  # NumPy's float64 would upcast float32


def log_of(x: RawArray | Number) -> RawArray | float:
    """log(x); of a Python number a Python number, which upcasts no float32."""
    return np.log(x) if hasattr(x, "dtype") else float(np.log(x))


def _all(x: RawArray | Number) -> bool:
    return bool(x) if isinstance(x, NUMBERS) else np.all(x)
