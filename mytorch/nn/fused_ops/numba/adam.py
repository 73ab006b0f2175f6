"""Adam and AdamW: one pass over parameters, gradients and means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from .gradient import gradient
from .half import bits_of, narrow_like, require_dtypes, singles, widen

__all__ = ["require_dtypes", "update"]


def update(
    data: np.ndarray, grad: np.ndarray, state: dict[str, np.ndarray], step: int, options: dict[str, Any],
    factors: tuple[float, float],
) -> None:  # fmt: skip
    """An update of Adam, in place (see `optim.Adam`).

    Args:
        data, grad: vectors of float32 or float16.
        state: "exp_avg", "exp_avg_sq" and, with amsgrad, "max_exp_avg_sq", vectors of float32.
        step: 1 for the first update.
        options: those of the optimizer's group.
        factors: what the gradients are multiplied by for good, and what then for this update only.
    """
    unscale, clip = factors
    (beta1, beta2), lr, weight_decay = options["betas"], options["lr"], options["weight_decay"]
    decoupled = options["decoupled_weight_decay"]
    penalty, shrink = (0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1)
    sign = -1 if options["maximize"] else 1
    # lr m_hat / (sqrt(v_hat) + eps) with the corrections pulled out: they cost nothing in the loop.
    correction = math.sqrt(1 - beta2**step)
    rate, eps = lr * correction / (1 - beta1**step), options["eps"] * correction
    numbers = singles(unscale, sign * clip, penalty, shrink, 1 - beta1, beta2, 1 - beta2, rate, eps)
    vectors = bits_of(data), bits_of(grad), state["exp_avg"], state["exp_avg_sq"]
    if options["amsgrad"]:
        _amsgrad(*vectors, state["max_exp_avg_sq"], *numbers)
    else:
        _adam(*vectors, *numbers)


@kernel
def _adam(p, g, m, v, unscale, clip, penalty, shrink, rest1, beta2, rest2, rate, eps):
    for i in prange(p.size):
        x = widen(p[i])
        d = gradient(g, i, x, unscale, clip, penalty)
        mean = m[i] + rest1 * (d - m[i])
        square = beta2 * v[i] + rest2 * (d * d)
        m[i], v[i] = mean, square
        p[i] = narrow_like(shrink * x - rate * (mean / (np.sqrt(square) + eps)), p[i])


@kernel
def _amsgrad(p, g, m, v, largest, unscale, clip, penalty, shrink, rest1, beta2, rest2, rate, eps):
    for i in prange(p.size):
        x = widen(p[i])
        d = gradient(g, i, x, unscale, clip, penalty)
        mean = m[i] + rest1 * (d - m[i])
        square = beta2 * v[i] + rest2 * (d * d)
        m[i], v[i] = mean, square
        top = largest[i]
        top = square if not square <= top and top == top else top  # NaN from either side stays
        largest[i] = top
        p[i] = narrow_like(shrink * x - rate * (mean / (np.sqrt(top) + eps)), p[i])
