"""What the kernels of linear layers share on both devices: the products of backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.blas import add_product, product
from ...core.lazy_grad import LazyGrad
from ..functional.composite import Unsupported


def require_shapes(weight: Any, bias: Any | None) -> None:
    """Raise `Unsupported` unless these are a matrix, and a number for each of its rows."""
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        got = f"{weight.shape}" if bias is None else f"{weight.shape} and {bias.shape}"
        raise Unsupported(f"the kernel wants a weight (n, k) and a bias (n,), got {got}")


def gradients(x: Any, weight: Any, bias: Any | None, x_shape: tuple, backward: Callable) -> tuple:
    """The functions from the gradient of y = f(x W^T + b) to those of x, W and b.

    Args:
        x: a matrix, with the rows of all leading dims.
        x_shape: what it was.
        backward: `backward(g)` gets the gradient of y, (m, n), and returns that of x W^T + b and a function
            that returns that of b. It is called once for a g, however many gradients are asked for.
    """
    shape, w_shape = (x.shape[0], weight.shape[0]), weight.shape
    last: list = []  # the gradient that came in last, and what backward made of it

    def before(g):
        if not last or last[0] is not g:
            last[:] = g, backward(np.reshape(g, shape))
        return last[1]

    def grad_x(g):
        d, _ = before(g)
        return np.reshape(product(d, weight), x_shape)

    def grad_weight(g):
        d, _ = before(g)
        return LazyGrad(w_shape, d, lambda out, beta: add_product(d.T, x, out, beta))

    def grad_bias(g):
        _, sums = before(g)
        return sums()

    return grad_x, grad_weight, None if bias is None else grad_bias
