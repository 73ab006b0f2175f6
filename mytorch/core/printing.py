"""The text of arrays and tensors, as `print` shows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import CPU, move


def array_text(x: Any) -> str:
    """Returns `Array([8.00000], dtype=float32, device='cuda:0')`"""
    parts = [_values(x, "Array("), f"dtype={x.dtype}", f"device='{x.device}'"]
    if x.size == 0 and x.ndim > 1:
        parts.insert(1, f"shape={x.shape}")
    return f"Array({', '.join(parts)})"


def tensor_text(x: Any, marks: list[str]) -> str:
    """Returns `tensor([8.00000], requires_grad=True)`; dtype and device only if they aren't the default.

    Args:
        x: the tensor's data.
        marks: what is appended: `requires_grad=True`, the `grad_fn`.
    """
    parts = [_values(x, "tensor(")]
    if x.size == 0 and x.ndim > 1:
        parts.append(f"size={x.shape}")
    if x.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool):
        parts.append(f"dtype={x.dtype}")
    if x.device is not CPU:
        parts.append(f"device='{x.device}'")
    return f"tensor({', '.join(parts + marks)})"


def _values(x: Any, prefix: str) -> str:
    """The elements, floats with five digits, continuation lines aligned after `prefix`."""
    raw = move(x._array, CPU)
    if dtypes.is_half(raw.dtype):  # else float16 has exponents from 1000 on
        raw = raw.astype(dtypes.float32)
    with np.printoptions(precision=5, floatmode="fixed", suppress=_fits_fixed(raw)):
        return np.array2string(raw, prefix=prefix)


def _fits_fixed(raw: np.ndarray) -> bool:
    """Returns whether five digits after the point can show these values, without exponents."""
    if raw.dtype.kind != "f" or raw.size == 0:
        return True
    size = np.abs(raw[np.isfinite(raw) & (raw != 0)])
    return size.size == 0 or (size.max() < 1e5 and size.min() > 1e-4)
