"""Reading arguments that are numbers, and fitting them to a dtype."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from ..backends.device import is_raw
from ..backends.dtypes import finfo, is_floating_point
from ..core.array import Array
from ..core.op import NUMBERS, index_of, stands_for_number
from ..core.tensor import Tensor

Number: TypeAlias = bool | int | float | complex | np.generic


def integer(x: object, name: str) -> int:
    """`x` as an int, if it is an integer of any kind, but not a bool."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name}(): expected an integer, got {x!r}")
    return index_of(x)


def number(x: object, name: str) -> Number:
    """A Python number; of a 0-d tensor or a NumPy scalar, its value."""
    if (isinstance(x, (Tensor, Array, np.generic)) or is_raw(x)) and x.ndim == 0:
        return x.item()
    if not isinstance(x, NUMBERS):
        raise TypeError(f"{name}(): expected a number, got {type(x).__name__}")
    return x


def without_dims(x: object) -> Any:
    """The value of a 0-d tensor without a graph, which counts as a number; anything else as it is."""
    if isinstance(x, (Tensor, Array)) and x.ndim == 0 and not x.requires_grad:
        return x.item()
    return x


def as_number(value: Number, dtype: np.dtype, name: str) -> np.generic:
    """A number or a 0-d tensor as a scalar of `dtype`: a fraction is cut to an integer, -1 is 255 in uint8.

    Raises:
        RuntimeError: the dtype can't hold it: too large, infinite for integers, complex for real numbers.
        TypeError: it is no number.
    """
    if stands_for_number(value):
        return value.noted("as_number", dtype, name)
    value = without_dims(value)
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): expected a number or a tensor, got {type(value).__name__}")
    if not _fits(value, dtype):
        raise RuntimeError(f"{name}(): value {value} cannot be converted to {dtype} without overflow")
    if dtype.kind in "iu":
        return np.asarray(int(value), np.int64 if value < 2**63 else np.uint64).astype(dtype)[()]
    return np.asarray(value).astype(dtype)[()]


def _fits(value: Number, dtype: np.dtype) -> bool:
    if isinstance(value, (complex, np.complexfloating)):
        return dtype.kind in "cb"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wraps = dtype.kind == "u" and not isinstance(value, (float, np.floating))
        return abs(value) < math.inf and (-limits.max if wraps else limits.min) <= int(value) <= limits.max
    return not is_floating_point(dtype) or abs(value) == math.inf or not abs(value) > float(finfo(dtype).max)
