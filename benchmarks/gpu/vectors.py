"""The jobs on long vectors in mytorch: callables that do one, again and again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import mytorch
from mytorch import optim
from mytorch.backends.device import as_device, cupy, on
from mytorch.nn.fused_ops.cast import cast_and_check, unscale_and_check
from mytorch.nn.fused_ops.norm import euclidean_norm
from mytorch.nn.fused_ops.norm import scale as multiply


def norm(where: str, n: int) -> Callable:
    """sqrt(sum x^2)"""
    x = _normal(where, n)
    return lambda: euclidean_norm(x)


def scale(where: str, n: int) -> Callable:
    """x <- x * 1, the factor being on the GPU."""
    x, one = _normal(where, n), _full(where, 1)
    return lambda: multiply(x, one)


def cast(where: str, n: int, itemsize: int) -> Callable:
    """A half (or a float32) gradient to float32, and whether it is finite."""
    x = _normal(where, n).astype({2: np.float16, 4: np.float32}[itemsize])
    out, found_inf = _normal(where, n), _full(where, 0)
    return lambda: cast_and_check(x, out, found_inf)


def unscale(where: str, n: int) -> Callable:
    """x <- x * 1, and whether it is finite."""
    x, one, found_inf = _normal(where, n), _full(where, 1), _full(where, 0)
    return lambda: unscale_and_check(x, one, found_inf)


def adamw(where: str, n: int) -> Callable:
    """A step of AdamW."""
    p = mytorch.zeros(n, device=where, requires_grad=True)
    p.grad = mytorch.ones(n, device=where)
    return optim.AdamW([p], lr=1e-4).step


def _normal(where: str, n: int):
    with on(as_device(where)):
        return cupy().random.standard_normal(n, dtype=np.float32)


def _full(where: str, value: float):
    with on(as_device(where)):
        return cupy().full(1, value, np.float32)
