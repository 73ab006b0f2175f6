"""Lion: one pass over parameters, gradients and their mean."""

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
    """An update of Lion, in place (see `optim.Lion`); arguments as for Adam; `step` is unused."""
    beta1, beta2 = options["betas"]
    launch_update(
        _lion, [data, grad, state["exp_avg"]], factors,
        *lr_arguments(options["lr"]), float(options["weight_decay"]), float(beta1), 1 - beta1, 1 - beta2,
        MAXIMIZE=options["maximize"],
    )


@triton.jit
def _lion(
    p_ptr, g_ptr, m_ptr, n, grad_scale_ptr, found_inf_ptr, total_norm_ptr, max_norm, lr, lr_ptr, weight_decay,
    beta1, one_minus_beta1, one_minus_beta2, MAXIMIZE: tl.constexpr, STORE: tl.constexpr, BLOCK: tl.constexpr,
):
    # Shapes: p, g, m (n,); grad_scale, found_inf, total_norm, lr (1,)
    n, unscale, clip = scaling(n, found_inf_ptr, grad_scale_ptr, total_norm_ptr, max_norm)
    if lr_ptr is not None:
        lr = tl.load(lr_ptr)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(p_ptr + at, mask=inside, other=0.0).to(tl.float32)
    clip = -clip if MAXIMIZE else clip
    d = gradient(g_ptr, at, inside, x, grad_scale_ptr, unscale, clip, 0.0, STORE)
    m = tl.load(m_ptr + at, mask=inside, other=0.0)
    mixed = beta1 * m + one_minus_beta1 * d
    direction = tl.where(mixed > 0.0, 1.0, tl.where(mixed < 0.0, -1.0, mixed))  # NaN stays NaN
    m += one_minus_beta2 * (d - m)
    tl.store(m_ptr + at, m, mask=inside)
    x = (1 - lr * weight_decay) * x - lr * direction
    tl.store(p_ptr + at, x.to(p_ptr.dtype.element_ty), mask=inside)
