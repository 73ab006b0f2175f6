"""Elementwise kernels on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ....backends import jit
from .. import elementwise
from .moments import require_single

# With fewer elements one thread is faster: waking the others takes about 50 µs.
kernel: Callable = functools.partial(jit.kernel, grain=1 << 16, compiled_twice=True)


def unary(
    x: np.ndarray, forward: Callable, backward: Callable, *scalars: float, save_result: bool = False
) -> tuple:
    """Returns the result and the vjp of elementwise kernels, see `fused_ops.elementwise.unary`."""
    require_single(x)
    return elementwise.unary(x, forward, backward, *scalars, save_result=save_result)
