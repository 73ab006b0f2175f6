"""Stochastic gradient descent, with or without momentum: one pass over parameters, gradients and momentum."""

from __future__ import annotations

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
    """An update of SGD, in place (see `optim.SGD`); arguments as for Adam, state "momentum_buffer"."""
    sign, momentum = -1 if options["maximize"] else 1, options["momentum"]
    scalars = singles(factors[0], sign * factors[1], options["weight_decay"], options["lr"])
    if momentum == 0:
        _plain(bits_of(data), bits_of(grad), *scalars)
        return
    decay, grad_factor = (0, 1) if step == 1 else (momentum, 1 - options["dampening"])
    _with_momentum(
        bits_of(data), bits_of(grad), state["momentum_buffer"], *scalars,
        *singles(decay, grad_factor, momentum), options["nesterov"],
    )


@kernel
def _plain(p, g, unscale, clip, weight_decay, lr):
    for i in prange(p.size):
        x = upcast(p[i])
        p[i] = downcast_like(x - lr * gradient(g, i, x, unscale, clip, weight_decay), p[i])


@kernel
def _with_momentum(p, g, b, unscale, clip, weight_decay, lr, decay, grad_factor, momentum, nesterov):
    for i in prange(p.size):
        x = upcast(p[i])
        d = gradient(g, i, x, unscale, clip, weight_decay)
        total = decay * b[i] + grad_factor * d
        b[i] = total
        p[i] = downcast_like(x - lr * (d + momentum * total if nesterov else total), p[i])
