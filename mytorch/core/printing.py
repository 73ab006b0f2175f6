"""The text of arrays and tensors, as `print` shows it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import CPU, META, move
from ..backends.door import in_force

_PROFILES = {
    "default": {"precision": 5, "threshold": 1000, "edgeitems": 3, "linewidth": 75},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 75},
    "full": {"precision": 5, "threshold": sys.maxsize, "edgeitems": 3, "linewidth": 75},
}
_options = dict(_PROFILES["default"])
_sci_mode: bool | None = None


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:
    """Sets how tensors and Arrays are printed.

    Args:
        precision: digits after the point; 5.
        threshold: with more elements than that, only the first and last are printed; 1000.
        edgeitems: how many of these; 3.
        linewidth: characters of a line; 75.
        profile: "default", "short" or "full"; what is given besides counts.
        sci_mode: True for numbers with exponents, False for none, None for what suits the values.

    Raises:
        ValueError: another profile.

    >>> mytorch.set_printoptions(precision=2)
    >>> mytorch.tensor([mytorch.pi])
    tensor([3.14])
    >>> mytorch.set_printoptions(profile="default")
    """
    global _sci_mode
    if profile is not None:
        if profile.lower() not in _PROFILES:
            raise ValueError(f"set_printoptions(): profile is {', '.join(_PROFILES)}, got {profile!r}")
        _options.update(_PROFILES[profile.lower()])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({name: value for name, value in given.items() if value is not None})
    _sci_mode = sci_mode


def array_text(x: Any) -> str:
    """Returns `Array([8.00000], dtype=float32, device='cuda:0')`; on the CPU without the device."""
    parts = [_values(x, "Array(")]
    if x.device is META or (x.size == 0 and x.ndim > 1):
        parts.append(f"shape={x.shape}")
    parts.append(f"dtype={x.dtype}")
    if x.device is not CPU:
        parts.append(f"device='{x.device}'")
    return f"Array({', '.join(parts)})"


def tensor_text(x: Any, marks: list[str]) -> str:
    """Returns `tensor([8.00000], requires_grad=True)`; dtype and device only if they aren't the default.

    Args:
        x: the tensor's data.
        marks: what is appended: `requires_grad=True`, the `grad_fn`.
    """
    parts = [_values(x, "tensor(")]
    if x.device is META:
        parts += ["device='meta'", f"size={x.shape}"]
    elif x.size == 0 and x.ndim > 1:
        parts.append(f"size={x.shape}")
    if x.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool):
        parts.append(f"dtype={x.dtype}")
    if x.device.type == "cuda":
        parts.append(f"device='{x.device}'")
    return f"tensor({', '.join(parts + marks)})"


def _values(x: Any, prefix: str) -> str:
    """The elements, floats with five digits, continuation lines aligned after `prefix`."""
    in_force().once("the elements of an array, which are printed")
    if x.device is META:
        return "..."
    raw = move(x._array, CPU)
    if dtypes.is_half(raw.dtype):  # else float16 has exponents from 1000 on
        raw = raw.astype(dtypes.float32)
    fixed = _fits_fixed(raw) if _sci_mode is None else not _sci_mode
    how = {**_options, "floatmode": "fixed", "suppress": fixed}
    if _sci_mode:
        how["formatter"] = {"float_kind": lambda x: f"{x:.{_options['precision']}e}"}
    with np.printoptions(**how):
        return np.array2string(raw, prefix=prefix)


def _fits_fixed(raw: np.ndarray) -> bool:
    """Returns whether five digits after the point can show these values, without exponents."""
    if raw.dtype.kind != "f" or raw.size == 0:
        return True
    size = np.abs(raw[np.isfinite(raw) & (raw != 0)])
    return size.size == 0 or (size.max() < 1e5 and size.min() > 1e-4)
