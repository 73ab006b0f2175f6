"""Results that don't depend on the input: the functional form of what `ops.inplace` writes."""

from __future__ import annotations

import numpy as np

from ...backends.device import is_raw
from ...core.op import op
from ..scalars import as_number
from .operands import zero_gradient

__all__ = ["fill", "zero"]


@op(half="float16")
def fill(x, value):
    """Every element replaced by `value`, a number or a 0-d tensor.

    Raises:
        RuntimeError: the value has dims; x's dtype can't hold the number.
    """
    if not is_raw(value):
        value = as_number(value, x.dtype, "fill")
    elif value.ndim:
        raise RuntimeError(f"fill(): the value must be a number or a 0-d tensor, got shape {value.shape}")
    return np.full_like(x, value), (zero_gradient, lambda g: g)


@op(half="float16")
def zero(x):
    """Every element replaced by 0."""
    return np.zeros_like(x), zero_gradient
