"""Adam and AdamW: one pass over parameters, gradients and means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from .gradient import gradient
from .half import bits_of, downcast_like, require_dtypes, singles, upcast

__all__ = ["require_dtypes", "update"]


def update(
    data: np.ndarray, grad: np.ndarray, state: dict[str, np.ndarray], step: int, options: dict[str, Any],
    factors: tuple[float, float],
) -> None:
    """An update of Adam, in place (see `optim.Adam`).

    Args:
        data, grad: vectors of float32 or float16.
        state: "exp_avg", "exp_avg_sq" and, with amsgrad, "max_exp_avg_sq", vectors of float32.
        step: 1 for the first update.
        options: those of the optimizer's group.
        factors: the gradients are multiplied by the first in place, and by the second for this update only.
    """
    unscale, clip = factors
    (beta1, beta2), lr, weight_decay = options["betas"], options["lr"], options["weight_decay"]
    decoupled = options["decoupled_weight_decay"]
    l2, decay = (0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1)
    sign = -1 if options["maximize"] else 1
    # lr m_hat / (sqrt(v_hat) + eps), with the bias corrections moved out of the loop.
    bias_correction2_sqrt = math.sqrt(1 - beta2**step)
    step_size, eps = lr * bias_correction2_sqrt / (1 - beta1**step), options["eps"] * bias_correction2_sqrt
    scalars = singles(unscale, sign * clip, l2, decay, 1 - beta1, beta2, 1 - beta2, step_size, eps)
    vectors = bits_of(data), bits_of(grad), state["exp_avg"], state["exp_avg_sq"]
    if options["amsgrad"]:
        _amsgrad(*vectors, state["max_exp_avg_sq"], *scalars)
    else:
        _adam(*vectors, *scalars)


@kernel
def _adam(p, g, m, v, unscale, clip, l2, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, eps):
    for i in prange(p.size):
        x = upcast(p[i])
        d = gradient(g, i, x, unscale, clip, l2)
        new_m = m[i] + one_minus_beta1 * (d - m[i])
        new_v = beta2 * v[i] + one_minus_beta2 * (d * d)
        m[i], v[i] = new_m, new_v
        p[i] = downcast_like(decay * x - step_size * (new_m / (np.sqrt(new_v) + eps)), p[i])


@kernel
def _amsgrad(
    p, g, m, v, max_v, unscale, clip, l2, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, eps
):
    for i in prange(p.size):
        x = upcast(p[i])
        d = gradient(g, i, x, unscale, clip, l2)
        new_m = m[i] + one_minus_beta1 * (d - m[i])
        new_v = beta2 * v[i] + one_minus_beta2 * (d * d)
        m[i], v[i] = new_m, new_v
        v_max = max_v[i]
        v_max = new_v if not new_v <= v_max and v_max == v_max else v_max  # NaN of either propagates
        max_v[i] = v_max
        p[i] = downcast_like(decay * x - step_size * (new_m / (np.sqrt(v_max) + eps)), p[i])
