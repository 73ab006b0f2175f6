"""Stochastic gradient descent, with or without momentum: one pass over parameters, gradients and momentum."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ....backends.device import RawArray
from .gradient import gradient, launch_update, lr_arguments, scaling
from .launch import require_dtypes

__all__ = ["require_dtypes", "update"]


def update(
    data: RawArray, grad: RawArray, state: dict[str, RawArray], step: int,
    options: dict[str, Any], factors: tuple,
) -> None:
    """An update of SGD, in place (see `optim.SGD`); arguments as for Adam.

    Args:
        step: 1 for the first update.
    """
    momentum, buffer = float(options["momentum"]), state.get("momentum_buffer")
    decay, grad_factor = (0.0, 1.0) if step == 1 else (momentum, 1 - float(options["dampening"]))
    launch_update(
        _sgd, [data, grad, buffer], factors,
        *lr_arguments(options["lr"]), float(options["weight_decay"]), momentum, decay, grad_factor,
        NESTEROV=options["nesterov"], MAXIMIZE=options["maximize"],
    )


@triton.jit
def _sgd(
    p_ptr, g_ptr, b_ptr, n, grad_scale_ptr, found_inf_ptr, total_norm_ptr, max_norm,
    lr, lr_ptr, weight_decay, momentum, decay, grad_factor,
    NESTEROV: tl.constexpr, MAXIMIZE: tl.constexpr, STORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Shapes: p, g, b (n,); grad_scale, found_inf, total_norm, lr (1,)
    n, unscale, clip = scaling(n, found_inf_ptr, grad_scale_ptr, total_norm_ptr, max_norm)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(p_ptr + at, mask=inside, other=0.0).to(tl.float32)
    clip = -clip if MAXIMIZE else clip
    d = gradient(g_ptr, at, inside, x, grad_scale_ptr, unscale, clip, weight_decay, STORE)
    if b_ptr is not None:
        b = decay * tl.load(b_ptr + at, mask=inside, other=0.0) + grad_factor * d
        tl.store(b_ptr + at, b, mask=inside)
        d = d + momentum * b if NESTEROV else b
    if lr_ptr is not None:
        lr = tl.load(lr_ptr)
    x -= lr * d
    tl.store(p_ptr + at, x.to(p_ptr.dtype.element_ty), mask=inside)
