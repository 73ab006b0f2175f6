"""pad: constant, reflect, replicate and circular padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...core.op import index_of, op, require_tensor
from ...core.tensor import Tensor
from ...ops.dims import fixed_size
from .resample import Taps, resample
from .windows import inner, padded

# mode: (positions i, from below 0 to above n - 1, size n, range kept of the dim) -> index in 0 … n - 1
MODES = {
    "reflect": lambda i, n, left: n - 1 - np.abs(n - 1 - np.abs(i)),
    "replicate": lambda i, n, left: np.clip(i, 0, n - 1),
    "circular": lambda i, n, left: left.start + (i - left.start) % len(left),
}


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads dims at both ends, or crops them for negative sizes.

    Args:
        pad: sizes before and after the last dim, then before and after the second to last, and so on.
        mode: the padding values, here for the row a b c d and pad=(2, 2):
            "constant": v v a b c d v v, for any number of dims;
            "reflect": c b a b c d c b, "replicate": a a a b c d d d, "circular": c d a b c d a b; they pad
            the last dim of 2 or 3, the last two of 3 or 4, or the last three of 4 or 5.
        value: v, by default 0; only with "constant".

    Raises:
        NotImplementedError: an unknown mode; a number of dims or a dtype that the mode does not support.
        RuntimeError: sizes that do not match the input, an odd number of them, or an invalid value.
        TypeError: `input` is not a Tensor, or sizes are not ints.

    >>> F.pad(mytorch.tensor([[1, 2]]), (1, 0), value=9)
    tensor([[9 1 2]])
    """
    require_tensor(input, "pad")
    sizes = _read(pad, input.ndim)
    if mode == "constant":
        return _constant(input, sizes, value=_fill_value(value, input.dtype))
    if mode not in MODES:
        raise NotImplementedError(f"pad(): mode is 'constant', {', '.join(map(repr, MODES))}, got {mode!r}")
    if value:
        raise RuntimeError(f"pad(): mode {mode!r} doesn't take in value argument, got {value}")
    _check(input, sizes, mode)
    for dim, (before, after) in zip(range(input.ndim - 1, 0, -1), sizes, strict=False):
        n, before, after = map(fixed_size, (input.shape[dim], before, after))
        left = range(max(-before, 0), n + min(after, 0))
        index = MODES[mode](np.arange(-before, n + after), n, left)
        input = resample(input, Taps(index[:, None]), dim)
    return input


@op(half="float16")
def _constant(x, sizes, *, value):
    """Pads x with `value`; the adjoint undoes the padding, with zeros for cropped elements."""
    pairs = sizes[::-1]
    lead = x.ndim - len(sizes)
    if any([n + min(a, 0) + min(b, 0) < 0 for n, (a, b) in zip(x.shape[lead:], pairs, strict=True)]):
        raise RuntimeError(f"pad(): narrow(): length must be non-negative: shape {x.shape} padded by {pairs}")
    kept = inner(x, [(max(-a, 0), max(-b, 0)) for a, b in pairs])
    y = padded(kept, [(max(a, 0), max(b, 0)) for a, b in pairs], value)
    undo = [(-a, -b) for a, b in sizes]
    return np.copy(y) if y is kept else y, lambda g: _constant.dual(g, undo, value=0)


def _read(pad, ndim):
    """Returns (before, after) for each padded dim, the last dim first."""
    if not isinstance(pad, Iterable):
        raise TypeError(f"pad(): argument 'pad' must be a tuple of ints, not {type(pad).__name__}")
    try:
        flat = [index_of(n) for n in pad]
    except TypeError:
        raise TypeError(f"pad(): argument 'pad' must be a tuple of ints, got {pad!r}") from None
    if len(flat) % 2:
        raise RuntimeError(f"pad(): padding length must be divisible by 2, got {flat}")
    if len(flat) > 2 * ndim:
        raise RuntimeError(
            "pad(): padding length should be less than or equal to two times the input dimension, "
            f"but got padding length {len(flat)} and input of dimension {ndim}"
        )
    return list(zip(flat[::2], flat[1::2], strict=True))


def _fill_value(value, dtype):
    """Returns the value in the dtype; raises if it overflows."""
    value = 0 if value is None else value
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or not limits.min <= value <= limits.max:
            raise RuntimeError(f"pad(): value {value} cannot be converted to type {dtype} without overflow")
    return dtype.type(value)


def _check(input, sizes, mode):
    shape, count = tuple(input.shape), len(sizes)
    if not 1 <= count <= 3 or len(shape) not in (count + 1, count + 2):
        raise NotImplementedError(
            f"pad(): padding size {2 * count} is not supported for {len(shape)}D input tensor (mode {mode!r})"
        )
    if input.dtype == bool and mode != "circular":
        raise NotImplementedError(f"pad(): mode {mode!r} is not implemented for bool tensors")
    spatial = shape[-count:][::-1]
    if mode != "circular" and 0 in shape[-count - 1 :]:
        raise RuntimeError(
            f"pad(): expected possibly 0 batch size and other non-zero dimensions for input, got {shape}"
        )
    for n, (before, after) in zip(spatial, sizes, strict=True):
        if mode == "reflect" and max(before, after) >= n:
            raise RuntimeError(
                "pad(): padding size should be less than the corresponding input dimension, "
                f"but got padding {(before, after)} for a dimension of {n}, input {shape}"
            )
        if mode == "circular" and max(before, after) > n + min(before, 0) + min(after, 0):
            raise RuntimeError(
                "pad(): padding value causes wrapping around more than once: "
                f"padding {(before, after)} for a dimension of {n}, input {shape}"
            )
        if mode != "circular" and n + before + after < 1:
            raise RuntimeError(f"pad(): input {shape} is too small for padding {(before, after)}: no output")
