"""The gradient that an update of parameters uses, computed without waiting for the GPU."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ....backends.device import RawArray, is_raw
from .launch import launch
from .sizes import cdiv

BLOCK = 512


@triton.jit
def scaling(n, found_inf_ptr, grad_scale_ptr, total_norm_ptr, max_norm):
    """The number of elements to update, and the factors of gradients: in place, and for this update only."""
    # Shapes: found_inf, grad_scale, total_norm (1,)
    unscale = 1.0
    clip = 1.0
    if found_inf_ptr is not None:
        n = tl.where(tl.load(found_inf_ptr) == 0.0, n, 0)
    if grad_scale_ptr is not None:
        unscale = 1.0 / tl.load(grad_scale_ptr)
    if total_norm_ptr is not None:
        clip = max_norm / (tl.load(total_norm_ptr) * unscale + 1e-6)
        clip = tl.where(clip >= 1.0, 1.0, clip)  # NaN stays
    return n, unscale, clip


@triton.jit
def gradient(g_ptr, at, inside, x, grad_scale_ptr, unscale, clip, weight_decay, STORE: tl.constexpr):
    """unscale clip g + weight_decay x; with STORE, g itself becomes unscale g."""
    # Shapes: g (n,); grad_scale (1,)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if grad_scale_ptr is not None:
        g *= unscale
        if STORE:
            tl.store(g_ptr + at, g.to(g_ptr.dtype.element_ty), mask=inside)
    g *= clip
    return tl.where(weight_decay == 0.0, g, g + weight_decay * x)  # 0 times inf would be NaN


@triton.jit
def one_minus_power(t, log_beta):
    """1 - beta^t; where that is much smaller than 1, from the series of e^x."""
    x = t * log_beta
    series = 1.0 + x / 9
    for k in tl.static_range(8, 1, -1):
        series = 1.0 + x / k * series
    return tl.where(x > -0.5, -x * series, 1.0 - tl.exp(x))


def lr_arguments(lr: float | RawArray) -> tuple[float, RawArray | None]:
    """Returns a learning rate as two arguments of a kernel: a number, and an array with it or None."""
    return (0.0, lr) if is_raw(lr) else (float(lr), None)


def launch_update(
    kernel: JITFunction, vectors: list[RawArray | None], scaling: tuple, *scalars: object, **meta: object
) -> None:
    """Launches the kernel of an update on vectors (or None) of one length, of which the first is the data."""
    n = vectors[0].size
    if n:
        *factors, stores = scaling
        meta = {**meta, "STORE": stores, "BLOCK": BLOCK}
        launch(kernel, (cdiv(n, BLOCK),), *vectors, n, *factors, *scalars, **meta)
