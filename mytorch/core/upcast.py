"""
bfloat16 is computed in float32: what a function gets is upcast, and what it gives is downcast, once.

NumPy can store bfloat16 and convert it, but it sums in bfloat16, and mixes it with numbers as it likes. So
the body of an op doesn't see it: it gets float32, and its vjp a gradient of float32. PyTorch's kernels do the
same. An op that only moves elements, or widens by itself what it must, says `@op(bfloat16=True)`, and gets
what there is. So does a view.

An array is here whatever has elements: a raw array, an Array or a Tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..backends import dtypes

FLOAT32 = np.dtype(np.float32)


def call_upcast(forward: Callable, args: Sequence[Any], kwargs: dict) -> tuple[Any, Any]:
    """`forward(*args, **kwargs)`, a result and its vjp; in float32 if the floats among `args` are bfloat16.

    The results of float32 are then downcast to bfloat16, unless `dtype=` says otherwise. Where bfloat16 meets
    another floating-point dtype, `forward` gets both as they are: it promotes them, or raises.
    """
    wanted = kwargs.get("dtype") if kwargs else None
    if wanted is None and not _has_bfloat16(args):
        return forward(*args, **kwargs)
    narrow = half_dtype(args, dtypes.is_bfloat16)
    wanted = narrow if wanted is None else dtypes.as_dtype(wanted)
    if narrow is None and (wanted is None or not dtypes.is_bfloat16(wanted)):
        return forward(*args, **kwargs)
    if not dtypes.is_bfloat16(wanted):
        return in_float32(forward, args, kwargs)
    if "dtype" in kwargs:
        kwargs = {**kwargs, "dtype": FLOAT32}
    result, vjp = in_float32(forward, args, kwargs)
    return downcast(result, wanted), vjp


def _has_bfloat16(args: Sequence[Any]) -> bool:
    for a in args:
        dtype = getattr(a, "dtype", None)
        if dtype is not None and dtype.kind == "V":
            return True
    return False


def in_float32(forward: Callable, args: Iterable[Any], kwargs: dict) -> tuple[Any, Any]:
    """`forward` and its vjp on float32 in place of half precision; the result stays float32."""
    result, vjp = forward(*map(upcast, args), **kwargs)
    return result, tuple(map(_of_single, vjp)) if isinstance(vjp, tuple) else _of_single(vjp)


def _of_single(vjp: Callable | None) -> Callable | None:
    return vjp and (lambda g: vjp(upcast(g)))


def rounds_once(function: Callable, is_narrow: Callable[[np.dtype], bool] = dtypes.is_half) -> Callable:
    """A function of arrays that does all of its steps in float32 if its floats are narrow, then rounds."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        narrow = half_dtype((*args, *kwargs.values()), is_narrow)
        if narrow is None:
            return function(*args, **kwargs)
        wide = {name: value if name == "out" else upcast(value) for name, value in kwargs.items()}
        return downcast(function(*map(upcast, args), **wide), narrow)

    return call


def half_dtype(args: Iterable[Any], is_narrow: Callable[[np.dtype], bool]) -> np.dtype | None:
    """The dtype of the floats among the arrays in `args`, if they have only one, and it is narrow."""
    found = None
    for a in args:
        if _is_array(a):
            dtype = a.dtype
            if found is None and is_narrow(dtype):
                found = dtype
            elif dtype != found and dtypes.is_inexact(dtype):
                return None
    return found


def upcast(x: Any) -> Any:
    """An array of half precision, or a list of some, as float32; anything else as it is."""
    if type(x) is list:  # the gradients of several results
        return [upcast(part) for part in x]
    return x.astype(FLOAT32) if _is_array(x) and dtypes.is_half(x.dtype) else x


def downcast(x: Any, dtype: np.dtype) -> Any:
    """An array of float32, or those in a tuple, as `dtype`; anything else as it is."""
    if type(x) in (tuple, list):
        return type(x)([downcast(part, dtype) for part in x])
    return x.astype(dtype) if getattr(x, "dtype", None) == FLOAT32 else x


def _is_array(x: Any) -> bool:
    return type(x) is np.ndarray or (hasattr(x, "astype") and not isinstance(x, np.generic))
