"""
Casts and multiplications of long vectors that also check for inf and NaN, for half-precision training: one
pass where NumPy needs three. They work on raw arrays and never wait for a GPU.
"""

from __future__ import annotations

import numpy as np

from ...backends.device import RawArray
from ...backends.dtypes import is_half
from . import registry


def cast_and_check(source: RawArray, out: RawArray, found_inf: RawArray) -> None:
    """Copies source to out and sets found_inf to 1 if an element of out is inf or NaN; else it is unchanged.

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
    with np.errstate(over="ignore"):  # overflow is what is checked for
        out[...] = source
    _record(out, found_inf)


def unscale_and_check(grad: RawArray, inv_scale: RawArray, found_inf: RawArray) -> None:
    """Multiplies grad by inv_scale in place and sets found_inf to 1 if an element is inf or NaN then.

    Args:
        grad: a contiguous vector of half precision or float32.
        inv_scale, found_inf: arrays of one float32, on the same device.

    Raises:
        ValueError: other shapes, dtypes or strides.
    """
    _check("unscale_and_check", found_inf, grad)
    if inv_scale.size != 1:
        raise ValueError(f"unscale_and_check(): inv_scale has shape {inv_scale.shape}, expected one element")
    kernels = registry.find("cast", grad)
    if kernels is not None:
        kernels.unscale_and_check(grad, inv_scale, found_inf)
        return
    with np.errstate(all="ignore"):
        np.multiply(grad, inv_scale, out=grad, casting="same_kind")
    _record(grad, found_inf)


def _check(name: str, found_inf: RawArray, *vectors: RawArray) -> None:
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


def _record(x: RawArray, found_inf: RawArray) -> None:
    np.maximum(found_inf, (~np.isfinite(x)).any(), out=found_inf)
