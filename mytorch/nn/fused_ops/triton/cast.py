"""Casts and multiplications that also check for inf and NaN, without waiting for the GPU."""

from __future__ import annotations

import triton
import triton.language as tl

from ....backends.device import RawArray
from .launch import launch, require_dtypes
from .sizes import cdiv

__all__ = ["cast_and_check", "require_dtypes", "unscale_and_check"]

BLOCK = 2048


def cast_and_check(source: RawArray, out: RawArray, found_inf: RawArray) -> None:
    """out <- source; found_inf <- 1 if an element of out is not finite (see `fused_ops.cast`)."""
    _launch(source, out, None, found_inf)


def unscale_and_check(grad: RawArray, inv_scale: RawArray, found_inf: RawArray) -> None:
    """grad *= inv_scale; found_inf <- 1 if an element is not finite then (see `fused_ops.cast`)."""
    _launch(grad, grad, inv_scale, found_inf)


def _launch(x: RawArray, y: RawArray, factor: RawArray | None, found_inf: RawArray) -> None:
    if x.size:
        launch(_scaled, (cdiv(x.size, BLOCK),), x, y, factor, found_inf, x.size, BLOCK=BLOCK)


@triton.jit
def _scaled(x_ptr, y_ptr, factor, found_inf_ptr, n, BLOCK: tl.constexpr):
    # Shapes: x, y (n,); factor, found_inf (1,)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if factor is not None:
        x *= tl.load(factor)
    y = x.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y, mask=inside)
    finite = tl.abs(y.to(tl.float32)) <= 3.4028234663852886e38  # NaN is not
    bad = tl.sum(tl.where(finite, 0, 1), axis=0) > 0
    tl.store(found_inf_ptr, 1.0, mask=bad)
