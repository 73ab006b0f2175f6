"""Stochastic gradient descent, with or without momentum: one pass over parameters, gradients and momentum."""

from __future__ import annotations

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
    """An update of SGD, in place (see `optim.SGD`); arguments as for Adam, state "momentum_buffer"."""
    sign, momentum = -1 if options["maximize"] else 1, options["momentum"]
    numbers = singles(factors[0], sign * factors[1], options["weight_decay"], options["lr"])
    if momentum == 0:
        _plain(bits_of(data), bits_of(grad), *numbers)
        return
    keep, rest = (0, 1) if step == 1 else (momentum, 1 - options["dampening"])
    _with_momentum(
        bits_of(data), bits_of(grad), state["momentum_buffer"], *numbers,
        *singles(keep, rest, momentum), options["nesterov"],
    )  # fmt: skip


@kernel
def _plain(p, g, unscale, clip, penalty, lr):
    for i in prange(p.size):
        x = widen(p[i])
        p[i] = narrow_like(x - lr * gradient(g, i, x, unscale, clip, penalty), p[i])


@kernel
def _with_momentum(p, g, b, unscale, clip, penalty, lr, keep, rest, momentum, nesterov):
    for i in prange(p.size):
        x = widen(p[i])
        d = gradient(g, i, x, unscale, clip, penalty)
        total = keep * b[i] + rest * d
        b[i] = total
        p[i] = narrow_like(x - lr * (d + momentum * total if nesterov else total), p[i])
