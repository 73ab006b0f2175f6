"""Adam and AdamW: one pass over parameters, gradients and means."""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from ....backends.device import RawArray
from .gradient import gradient, launch_update, lr_arguments, one_minus_power, scaling
from .launch import require_dtypes

__all__ = ["require_dtypes", "update"]


def update(
    data: RawArray, grad: RawArray, state: dict[str, RawArray], step: RawArray,
    options: dict[str, Any], factors: tuple,
) -> None:
    """An update of Adam, in place (see `optim.Adam`).

    Args:
        data, grad: vectors of float32, float16 or bfloat16.
        state: "exp_avg", "exp_avg_sq" and, with amsgrad, "max_exp_avg_sq", vectors of float32.
        step: a float32 vector of one element: 1 for the first update.
        options: those of the optimizer's group; lr may be a float32 vector of one element.
        factors: see `optim.update.Scaling.factors_on`.
    """
    (beta1, beta2), max_v = options["betas"], state.get("max_exp_avg_sq")
    launch_update(
        _adam, [data, grad, state["exp_avg"], state["exp_avg_sq"], max_v], factors,
        step, *lr_arguments(options["lr"]), _log(beta1), _log(beta2), 1 - beta1, beta2, 1 - beta2,
        float(options["eps"]), float(options["weight_decay"]),
        DECOUPLED=options["decoupled_weight_decay"], MAXIMIZE=options["maximize"],
    )


def _log(beta: float) -> float:
    return math.log(beta) if beta else -math.inf


@triton.jit
def _adam(
    p_ptr, g_ptr, m_ptr, v_ptr, max_v_ptr, n, grad_scale_ptr, found_inf_ptr, total_norm_ptr, max_norm,
    step_ptr, lr, lr_ptr, log_beta1, log_beta2, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay,
    DECOUPLED: tl.constexpr, MAXIMIZE: tl.constexpr, STORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Shapes: p, g, m, v, max_v (n,); grad_scale, found_inf, total_norm, step, lr (1,)
    n, unscale, clip = scaling(n, found_inf_ptr, grad_scale_ptr, total_norm_ptr, max_norm)
    step = tl.load(step_ptr)
    if lr_ptr is not None:
        lr = tl.load(lr_ptr)
    # lr m_hat / (sqrt(v_hat) + eps), with the bias corrections moved out.
    bias_correction2_sqrt = tl.sqrt(one_minus_power(step, log_beta2))
    step_size = lr * bias_correction2_sqrt / one_minus_power(step, log_beta1)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(p_ptr + at, mask=inside, other=0.0).to(tl.float32)
    clip = -clip if MAXIMIZE else clip
    l2 = 0.0 if DECOUPLED else weight_decay
    d = gradient(g_ptr, at, inside, x, grad_scale_ptr, unscale, clip, l2, STORE)
    m = tl.load(m_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    m += one_minus_beta1 * (d - m)
    v = beta2 * v + one_minus_beta2 * (d * d)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)
    if max_v_ptr is not None:
        max_v = tl.load(max_v_ptr + at, mask=inside, other=0.0)
        v = tl.where((v <= max_v) | (max_v != max_v), max_v, v)  # NaN of either propagates
        tl.store(max_v_ptr + at, v, mask=inside)
    x = (1 - lr * weight_decay) * x if DECOUPLED else x
    x -= step_size * (m / (tl.sqrt(v) + eps * bias_correction2_sqrt))
    tl.store(p_ptr + at, x.to(p_ptr.dtype.element_ty), mask=inside)
