"""Interpolation: resizes signals and images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ...backends.dtypes import is_floating_point, is_half
from ...core.op import index_of
from ...core.tensor import Tensor
from ...ops import clamp, floor
from ...ops.dims import fixed_size
from .composite import composite
from .resample import Taps, bins, resample
from .types import IntOrInts

REACH = {"linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 2}  # elements used on each side
NDIM = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}
MODES = ("nearest", "nearest-exact", "area", *NDIM)


@composite
def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:
    """Resizes the last dims, (N, C, n…) to (N, C, size…), one dim after the other.

    With scale = n / size, element o of the result is

        x[floor(scale o)] for "nearest", x[floor(scale (o + 1/2))] for "nearest-exact",
        the mean of the elements that it covers for "area",
        the line through the two elements around s for "linear", "bilinear" and "trilinear" (1, 2, 3 dims),
        a cubic polynomial of the four elements around s for "bicubic",

    where s = scale (o + 1/2) - 1/2, or with `align_corners` s = o (n - 1) / (size - 1).

    Args:
        size: of the last dims; or
        scale_factor: size = floor(n scale_factor) and scale = 1 / scale_factor.
        recompute_scale_factor: use scale = n / size with `scale_factor`, too.
        antialias: for "bilinear" and "bicubic": a shrinking dim is low-pass filtered.

    Raises:
        NotImplementedError: an unknown mode; a number of dims or a dtype that it does not support.
        RuntimeError: a dim without elements.
        ValueError: arguments that exclude each other.
    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981,
        https://doi.org/10.1109/TASSP.1981.1163711; a is -3/4, with
        `antialias` -1/2.

    >>> F.interpolate(mytorch.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1.00000 1.00000 2.00000 2.00000]]])
    """
    dtype = input.dtype
    for dim in range(input.ndim - 1, 1, -1):
        n, m, scale = input.shape[dim], size[dim - 2], scale_factor[dim - 2]
        taps = _taps(dtype, mode, antialias, n, m, scale, align_corners)
        fixed = dtype == np.uint8 and taps.weight is not None
        input = _in_fixed_point(input, taps, dim) if fixed else resample(input, taps, dim)
    return input


@interpolate.check
def _check(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias):
    shape = tuple(input.shape)
    if not 3 <= len(shape) <= 5 or mode not in MODES or len(shape) != NDIM.get(mode, len(shape)):
        raise NotImplementedError(
            "interpolate(): inputs may be 3D, 4D and 5D for the modes nearest | nearest-exact | area, 3D for "
            f"linear, 4D for bilinear | bicubic, 5D for trilinear; got {len(shape)}D for {mode!r}"
        )
    if align_corners is not None and mode not in NDIM:
        raise ValueError(f"interpolate(): align_corners can't be set for mode {mode!r}, got {align_corners}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate(): antialias is for 'bilinear' and 'bicubic', got mode {mode!r}")
    allowed = is_floating_point(input.dtype) or input.dtype == np.uint8
    if not allowed or (input.dtype == np.uint8 and mode in ("area", "linear", "trilinear")):
        raise NotImplementedError(f"interpolate(): mode {mode!r} isn't implemented for {input.dtype} tensors")
    if (size is None) == (scale_factor is None):
        what = "either" if size is None else "only one of"
        raise ValueError(f"interpolate(): {what} size or scale_factor should be defined")
    if recompute_scale_factor and size is not None:
        raise ValueError("interpolate(): recompute_scale_factor is not meaningful with an explicit size")
    n = shape[2:]
    if size is not None:
        factors = [None] * len(n)
        size = [index_of(s) for s in _one_per_dim(size, n, "size")]
    else:
        factors = _one_per_dim(scale_factor, n, "scale_factor")
        size = [int(a * f) for a, f in zip(n, factors, strict=True)]
    if 0 in shape[1:] or min(size) < 1:
        raise RuntimeError(
            "interpolate(): input and output sizes should be greater than 0, "
            f"but got input {shape}, output {size}"
        )
    if recompute_scale_factor:
        factors = [None] * len(n)
    scales = [_scale(*args, bool(align_corners)) for args in zip(n, size, factors, strict=True)]
    return input, size, scales, mode, bool(align_corners), None, antialias


def _one_per_dim(value, n, name):
    values = tuple(value) if isinstance(value, Sequence) else (value,) * len(n)
    if len(values) != len(n):
        raise ValueError(
            "interpolate(): input and output must have the same number of spatial dimensions, "
            f"but got {list(n)} and {name} {value}"
        )
    return values


def _scale(n, size, factor, align):
    if align:
        return (n - 1) / (size - 1) if size > 1 else 0.0
    return n / size if factor is None else 1 / factor


def _taps(dtype: np.dtype, mode: str, antialias: bool, n: int, size: int, scale: float, align: bool) -> Taps:
    if mode == "area":
        return bins(n, size)
    n, size, scale = map(fixed_size, (n, size, scale))
    real = np.float32 if dtype == np.float32 or is_half(dtype) else np.float64  # as PyTorch does
    scale, o, half = real(scale), np.arange(size).astype(real), real(0.5)
    if mode.startswith("nearest"):
        position = (scale * o if mode == "nearest" else scale * (o + half)).astype(np.float32)
        return Taps(np.minimum(position.astype(int), n - 1)[:, None])
    if antialias:
        return _antialias_taps(mode, n, scale * (o + half), max(scale, 1))
    s = scale * o if align else scale * (o + half) - half
    if n == size and mode != "bicubic":
        s = o
    reach = REACH[mode]
    index = np.floor(s).astype(int)[:, None] + np.arange(1 - reach, reach + 1)
    return Taps(np.clip(index, 0, n - 1), KERNEL[reach](index - s[:, None], -0.75))


def _antialias_taps(mode, n, center, width):
    """Returns weights stretched by `width`, over the elements from center - reach width to center + reach
    width, without those beyond the ends."""
    support = REACH[mode] * width
    first = np.maximum((center - support + 0.5).astype(int), 0)
    end = np.minimum((center + support + 0.5).astype(int), n)
    index = first[:, None] + np.arange(np.max(end - first))
    weight = KERNEL[REACH[mode]]((index - center[:, None] + 0.5) / width, -0.5) * (index < end[:, None])
    return Taps(np.minimum(index, end[:, None] - 1), weight / weight.sum(1, keepdims=True))


def _line(x, a):
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x, a):
    x = np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


KERNEL = {1: _line, 2: _cubic}


def _in_fixed_point(x: Tensor, taps: Taps, dim: int) -> Tensor:
    """Resamples uint8 as PyTorch does: weights rounded to 16 bits, the result of each dim to uint8."""
    weight, bits = taps.weight.copy(), 0
    for k in range(1, weight.shape[1]):  # sum the weights of repeated elements before rounding
        twice = taps.index[:, k] == taps.index[:, k - 1]
        weight[:, k] += np.where(twice, weight[:, k - 1], 0)
        weight[twice, k - 1] = 0
    while int(0.5 + weight.max() * 2 ** (bits + 1)) < 2**15:
        bits += 1
    weight = np.trunc(weight * 2.0**bits + np.copysign(0.5, weight))
    y = resample(x.double(), Taps(taps.index, weight), dim)
    return clamp(floor((y + 2.0 ** (bits - 1)) / 2.0**bits), 0, 255).to(dtype=x.dtype)


def upsample(
    input: Tensor, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:
    """Deprecated name of `interpolate`.

    >>> F.upsample(mytorch.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1.00000 1.00000 2.00000 2.00000]]])
    """
    warnings.warn("upsample is deprecated; use interpolate", stacklevel=3)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Deprecated name of `interpolate(mode="nearest")`.

    >>> F.upsample_nearest(mytorch.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1.00000 1.00000 2.00000 2.00000]]])
    """
    warnings.warn("upsample_nearest is deprecated; use interpolate", stacklevel=3)
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Deprecated name of `interpolate(mode="bilinear", align_corners=True)`.

    >>> F.upsample_bilinear(mytorch.ones(1, 1, 2, 2), scale_factor=2).shape
    Size([1, 1, 4, 4])
    """
    warnings.warn("upsample_bilinear is deprecated; use interpolate", stacklevel=3)
    return interpolate(input, size, scale_factor, "bilinear", True)
