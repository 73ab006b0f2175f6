"""What the kernels of single elements share on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends import jit
from ...functional.composite import Unsupported
from .. import elementwise

# One thread is done with fewer elements before a sleeping one wakes up, which takes some 50 µs.
kernel: Callable = functools.partial(jit.kernel, grain=1 << 16, compiled_twice=True)


def require_single(*arrays: Any) -> None:
    """Raise `Unsupported` unless all arrays are float32."""
    for x in arrays:
        if x.dtype != np.float32:
            raise Unsupported(f"the CPU's kernels compute in float32: none for {x.dtype}")


def unary(x: Any, forward: Callable, backward: Callable, *numbers: Any, keep_result: bool = False) -> tuple:
    """The result and the vjp of kernels of single elements, see `fused_ops.elementwise`."""
    require_single(x)
    return elementwise.unary(x, forward, backward, *numbers, keep_result=keep_result)
