"""
Half precision (float16 and bfloat16) is computed in float32: arguments are upcast, results downcast, once.

The body of an op gets float32 in place of half precision, and its vjp a gradient of float32, whose result the
backward pass casts to the dtype of the input. PyTorch's kernels do the same. Two kinds of ops are exempt:

- `@op(half=True)` takes both as they are: it only moves elements, or accumulates in float32 by itself, as a
  matrix product does. So is a view.
- `@op(half="float16")` takes float16, which NumPy and CuPy can compute with: its body is one of their
  functions, which rounds once, or a sum with `dtype=np.float32`. bfloat16 is upcast.
- `@op(half="sum")` takes bfloat16, too, where all arguments are arrays on a GPU: CuPy adds it, and rounds
  once. Upcasting would take three more passes over memory.

An array is here whatever has elements: a raw array, an Array or a Tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..backends import dtypes

FLOAT32 = np.dtype(np.float32)


def call_upcast(
    forward: Callable, args: Sequence[object], kwargs: dict,
    is_half: Callable[[np.dtype], bool] = dtypes.is_half,
) -> tuple[Any, Any]:
    """Returns `forward(*args, **kwargs)`, a result and its vjp; in float32 if the floats in `args` are half.

    The results of float32 are then downcast, unless `dtype=` says otherwise. Where half precision meets
    another floating-point dtype, `forward` gets both as they are: it promotes them, or raises.

    Args:
        is_half: which dtypes are upcast.
    """
    wanted = kwargs.get("dtype") if kwargs else None
    if wanted is None:
        for a in args:
            dtype = getattr(a, "dtype", FLOAT32)
            if dtype.itemsize == 2 and is_half(dtype):
                break
        else:
            return forward(*args, **kwargs)
    half = half_dtype(args, is_half)
    wanted = half if wanted is None else dtypes.as_dtype(wanted)
    if half is None and (wanted is None or not is_half(wanted)):
        return forward(*args, **kwargs)
    if not is_half(wanted):
        return in_float32(forward, args, kwargs)
    if "dtype" in kwargs:
        kwargs = {**kwargs, "dtype": FLOAT32}
    result, vjp = in_float32(forward, args, kwargs)
    return downcast(result, wanted), vjp


def in_float32(forward: Callable, args: Iterable[object], kwargs: dict) -> tuple[Any, Any]:
    """Returns `forward` and its vjp on float32 in place of half precision; the result stays float32."""
    result, vjp = forward(*map(upcast, args), **kwargs)
    return result, tuple(map(_of_float32, vjp)) if isinstance(vjp, tuple) else _of_float32(vjp)


def _of_float32(vjp: Callable | None) -> Callable | None:
    return vjp and (lambda g: vjp(upcast(g)))


def rounds_once(function: Callable, is_half: Callable[[np.dtype], bool] = dtypes.is_half) -> Callable:
    """Returns `function` with all of its steps in float32 where its floats are half: it rounds the result."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        half = half_dtype((*args, *kwargs.values()), is_half)
        if half is None:
            return function(*args, **kwargs)
        kwargs = {name: value if name == "out" else upcast(value) for name, value in kwargs.items()}
        return downcast(function(*map(upcast, args), **kwargs), half)

    return call


def half_dtype(args: Iterable[object], is_half: Callable[[np.dtype], bool]) -> np.dtype | None:
    """Returns the dtype of the floats among the arrays in `args` if they have only one, and it is half."""
    found = None
    for a in args:
        if _is_array(a):
            dtype = a.dtype
            if found is None and is_half(dtype):
                found = dtype
            elif dtype != found and dtypes.is_inexact(dtype):
                return None
    return found


def upcast(x: object) -> Any:
    """Returns an array of half precision, or those in a list, as float32; anything else as it is."""
    if type(x) is list:  # the gradients of several results
        return [upcast(item) for item in x]
    return x.astype(FLOAT32) if _is_array(x) and dtypes.is_half(x.dtype) else x


def downcast(x: object, dtype: np.dtype) -> Any:
    """Returns an array of float32, or those in a tuple, as `dtype`; anything else as it is."""
    if type(x) in (tuple, list):
        return type(x)([downcast(item, dtype) for item in x])
    return x.astype(dtype) if getattr(x, "dtype", None) == FLOAT32 else x


def _is_array(x: object) -> bool:
    return hasattr(x, "astype") and not isinstance(x, np.generic)
