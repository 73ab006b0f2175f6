"""Lion: one pass over parameters, gradients and their mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from .gradient import ONE, ZERO, gradient
from .half import bits_of, downcast_like, require_dtypes, singles, upcast

__all__ = ["require_dtypes", "update"]


def update(
    data: np.ndarray, grad: np.ndarray, state: dict[str, np.ndarray], step: int, options: dict[str, Any],
    factors: tuple[float, float],
) -> None:
    """An update of Lion, in place (see `optim.Lion`); arguments as for Adam, state "exp_avg"."""
    (beta1, beta2), lr = options["betas"], options["lr"]
    sign, decay = -1 if options["maximize"] else 1, 1 - lr * options["weight_decay"]
    scalars = singles(factors[0], sign * factors[1], decay, beta1, 1 - beta1, 1 - beta2, lr)
    _lion(bits_of(data), bits_of(grad), state["exp_avg"], *scalars)


@kernel
def _lion(p, g, m, unscale, clip, decay, beta1, one_minus_beta1, one_minus_beta2, lr):
    for i in prange(p.size):
        x = upcast(p[i])
        d = gradient(g, i, x, unscale, clip, ZERO)
        mixed = beta1 * m[i] + one_minus_beta1 * d
        direction = np.copysign(ONE, mixed) if mixed > ZERO or mixed < ZERO else mixed  # NaN stays NaN
        m[i] += one_minus_beta2 * (d - m[i])
        p[i] = downcast_like(decay * x - lr * direction, p[i])
