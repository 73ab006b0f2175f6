"""Distances between all pairs of points of two sets."""

from __future__ import annotations

import numpy as np

from ..backends.blas import product
from ..backends.device import RawArray
from ..backends.dtypes import is_floating_point, is_half
from ..core.op import op, require_tensor
from ..core.tensor import Tensor
from .autocast import autocasts, in_float32
from .elementwise import sub
from .mask import where
from .norms import norm
from .reduce import sum, total
from .shape import unsqueeze

__all__ = ["cdist"]

BY_PRODUCT = {
    "use_mm_for_euclid_dist_if_necessary": lambda points: points > 25,
    "use_mm_for_euclid_dist": lambda points: True,
    "donot_use_mm_for_euclid_dist": lambda points: False,
}


@autocasts(in_float32)
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """The p-norm of the difference of each point of `x1` and each of `x2`.

    Where two points coincide the gradient is 0.

    Args:
        x1, x2: (..., P, M) and (..., R, M) of one floating-point dtype, P and R points of M coordinates; the
            leading dims broadcast. The result is (..., P, R).
        p: at least 0, inf for the largest difference of a coordinate, 0 for how many differ.
        compute_mode: for p = 2 the distance is sqrt(|x|^2 + |y|^2 - 2 x·y), a matrix product instead of P R M
            differences but not as exact for close points, if P or R is above 25; or always, with
            "use_mm_for_euclid_dist"; or never, with "donot_use_mm_for_euclid_dist".

    Raises:
        RuntimeError: not matrices, other numbers of columns, other dtypes, a negative p.
        NotImplementedError: half precision.
        ValueError: another compute_mode.

    >>> mytorch.cdist(mytorch.zeros(1, 2), mytorch.tensor([[3.0, 4.0]]))
    tensor([[5.00000]])
    """
    _check(x1, x2, p)
    if compute_mode not in BY_PRODUCT:
        raise ValueError(f"cdist(): compute_mode is one of {', '.join(BY_PRODUCT)}, got {compute_mode!r}")
    if p == 2 and BY_PRODUCT[compute_mode](max(x1.shape[-2], x2.shape[-2])):
        return _euclidean(x1, x2)
    difference = sub(unsqueeze(x1, -2), unsqueeze(x2, -3))
    distance = norm(difference, p, -1) if x1.shape[-1] else sum(difference, -1)
    return where(distance != 0, distance, 0)  # where points coincide an infinite gradient has no direction


@op
def _euclidean(x, y):
    left = np.concatenate([-2 * x, *_square_and_one(x)], -1)
    right = np.concatenate([y, *reversed(_square_and_one(y))], -1)
    square = product(left, np.swapaxes(right, -1, -2))
    same = np.less_equal(square, 0)  # or a little less, by rounding
    z = np.where(same, 0, np.sqrt(np.where(same, 1, square)))

    def scaled(g):
        return np.where(same, 0, g / np.where(same, 1, z))

    def grad_x(g):
        return total(scaled(g), (-1,), True) * x - product(scaled(g), y)

    def grad_y(g):
        scaled_t = np.swapaxes(scaled(g), -1, -2)
        return total(scaled_t, (-1,), True) * y - product(scaled_t, x)

    return z, (grad_x, grad_y)


def _square_and_one(x: RawArray) -> list:
    square = total(np.square(x), (-1,), True)
    return [square, np.ones_like(square)]


def _check(x1: Tensor, x2: Tensor, p: float) -> None:
    for x in (x1, x2):
        require_tensor(x, "cdist")
        if not is_floating_point(x.dtype):
            raise RuntimeError(f"cdist(): only floating-point dtypes are supported, got {x.dtype}")
        if is_half(x.dtype):
            raise NotImplementedError(f"cdist(): not implemented for {x.dtype}; use float()")
        if x.ndim < 2:
            raise RuntimeError(f"cdist(): expected at least 2 dims, got shape {tuple(x.shape)}")
    if x1.dtype != x2.dtype:
        raise RuntimeError(f"cdist(): expected one dtype, got {x1.dtype} and {x2.dtype}")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"cdist(): points need as many columns, got shapes {tuple(x1.shape)} and {tuple(x2.shape)}"
        )
    if not p >= 0:
        raise RuntimeError(f"cdist(): p must not be negative, got {p}")
