"""Lion: one pass over parameters, gradients and their mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.jit import kernel, prange
from .gradient import ONE, ZERO, gradient
from .half import bits_of, narrow_like, require_dtypes, singles, widen

__all__ = ["require_dtypes", "update"]


def update(
    data: np.ndarray, grad: np.ndarray, state: dict[str, np.ndarray], step: int, options: dict[str, Any],
    factors: tuple[float, float],
) -> None:  # fmt: skip
    """An update of Lion, in place (see `optim.Lion`); arguments as for Adam, state "exp_avg"."""
    (beta1, beta2), lr = options["betas"], options["lr"]
    sign, shrink = -1 if options["maximize"] else 1, 1 - lr * options["weight_decay"]
    numbers = singles(factors[0], sign * factors[1], shrink, beta1, 1 - beta1, 1 - beta2, lr)
    _lion(bits_of(data), bits_of(grad), state["exp_avg"], *numbers)


@kernel
def _lion(p, g, m, unscale, clip, shrink, beta1, rest1, rest2, lr):
    for i in prange(p.size):
        x = widen(p[i])
        d = gradient(g, i, x, unscale, clip, ZERO)
        change = beta1 * m[i] + rest1 * d
        direction = np.copysign(ONE, change) if change > ZERO or change < ZERO else change  # of NaN: NaN
        m[i] += rest2 * (d - m[i])
        p[i] = narrow_like(shrink * x - lr * direction, p[i])
