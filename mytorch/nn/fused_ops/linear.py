"""The gradients of linear layers, for the kernels on both kinds of devices."""

from __future__ import annotations

from collections.abc import Callable

from ...backends.blas import add_product, product
from ...backends.device import RawArray
from ...core.grad_accumulator import LazyGrad
from ..functional.composite import Unsupported


def require_shapes(weight: RawArray, bias: RawArray | None) -> None:
    """Raises `Unsupported` unless weight is (n, k) and bias (n,)."""
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        got = f"{weight.shape}" if bias is None else f"{weight.shape} and {bias.shape}"
        raise Unsupported(f"the kernel takes a weight (n, k) and a bias (n,), got {got}")


def vjps(
    x: RawArray, weight: RawArray, bias: RawArray | None, x_shape: tuple[int, ...], backward: Callable
) -> tuple[Callable, Callable, Callable | None]:
    """Returns the vjps of y = f(x W^T + b) with respect to x, W and b.

    Args:
        x: a matrix, with all leading dims as rows.
        x_shape: the shape before that.
        backward: `backward(dy)` returns the gradient dz of z = x W^T + b, (m, n), and a function that returns
            that of b. It is called once for each dy, which all three vjps share.
    """
    shape, w_shape = (x.shape[0], weight.shape[0]), weight.shape
    last: list = []  # the last dy and backward's result for it

    def shared(dy):
        if not last or last[0] is not dy:
            last[:] = dy, backward(dy.reshape(shape))
        return last[1]

    def x_vjp(dy):
        dz, _ = shared(dy)
        return product(dz, weight).reshape(x_shape)

    def weight_vjp(dy):
        dz, _ = shared(dy)
        return LazyGrad(w_shape, dz, lambda out, beta: add_product(dz.T, x, out, beta))

    def bias_vjp(dy):
        _, dbias = shared(dy)
        return dbias()

    return x_vjp, weight_vjp, None if bias is None else bias_vjp
