"""
Casts and multiplications of long vectors that look for inf and NaN on the way: half-precision training in one
pass where NumPy needs three. These work on raw arrays, and not one of them waits for a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.dtypes import is_half
from . import registry


def cast_and_check(source: Any, out: Any, found_inf: Any) -> None:
    """out <- source, and found_inf <- 1 if a number of `out` is inf or NaN; else it stays as it is.

    Args:
        source, out: contiguous vectors of one length, of half precision or float32.
        found_inf: an array of one float32, on the same device.

    Raises:
        ValueError: other shapes, dtypes or strides.
    """
    _check("cast_and_check", found_inf, source, out)
    kernels = registry.find("cast", source, out)
    if kernels is not None:
        kernels.cast_and_check(source, out, found_inf)
        return
    with np.errstate(over="ignore"):  # finding that out is the point
        out[...] = source
    _note(out, found_inf)


def unscale_and_check(grad: Any, inv_scale: Any, found_inf: Any) -> None:
    """grad <- grad * inv_scale, and found_inf <- 1 if a number of it is inf or NaN then.

    Args:
        grad: a contiguous vector of half precision or float32.
        inv_scale, found_inf: arrays of one float32, on the same device.

    Raises:
        ValueError: other shapes, dtypes or strides.
    """
    _check("unscale_and_check", found_inf, grad)
    if inv_scale.size != 1:
        raise ValueError(f"unscale_and_check(): inv_scale has shape {inv_scale.shape}, expected one number")
    kernels = registry.find("cast", grad)
    if kernels is not None:
        kernels.unscale_and_check(grad, inv_scale, found_inf)
        return
    with np.errstate(all="ignore"):
        np.multiply(grad, inv_scale, out=grad, casting="same_kind")
    _note(grad, found_inf)


def _check(name: str, found_inf: Any, *vectors: Any) -> None:
    if found_inf.size != 1 or found_inf.dtype != np.float32:
        raise ValueError(
            f"{name}(): found_inf is {found_inf.dtype} of shape {found_inf.shape}, expected one float32"
        )
    for x in vectors:
        if x.ndim != 1 or not x.flags.c_contiguous or x.shape != vectors[0].shape:
            shapes = ", ".join(str(x.shape) for x in vectors)
            raise ValueError(f"{name}(): expected contiguous vectors of one length, got shapes {shapes}")
        if x.dtype != np.float32 and not is_half(x.dtype):
            raise ValueError(f"{name}(): expected float16, bfloat16 or float32, got {x.dtype}")


def _note(x: Any, found_inf: Any) -> None:
    np.maximum(found_inf, (~np.isfinite(x)).any(), out=found_inf)
