"""grid_sample, the values of images between their pixels, and affine_grid, where an affine map needs them."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor
from ...ops import fmod, linspace, ones, round, where, zeros, zeros_like
from .composite import composite, require_float

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")
A = -0.75  # Keys's constant
FAR = -100.0  # stands for a coordinate that is NaN or infinite: outside of every image
LARGEST = 2.0**30


@composite
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Returns the values of images at the points of a grid.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W)
        grid: (N, H', W', 2) or (N, D', H', W', 3), points (x, y) or (x, y, z) from -1 to 1.
        mode: "bilinear": between the 4 (in 5 dims: 8) pixels around a point, linear in each coordinate;
            "nearest": the nearest pixel; "bicubic": cubic in each coordinate, between 16 (4 dims only).
        padding_mode: of points outside: "zeros"; "border": the nearest pixel; "reflection": at the ends.
        align_corners: the ends are the centers of the first and the last pixel, not their outer edges.

    Returns:
        (N, C, H', W') or (N, C, D', H', W')

    Raises:
        ValueError: an unknown mode.
        RuntimeError: shapes or dtypes do not match, a dim without pixels, "bicubic" in 5 dims.
    Source: Jaderberg et al., "Spatial Transformer Networks", 2015, section 3.3,
        https://arxiv.org/abs/1506.02025; "bicubic": Keys, 1981, as in `interpolate`.

    >>> grid = F.affine_grid(mytorch.eye(2, 3).unsqueeze(0), (1, 1, 2, 2))
    >>> F.grid_sample(mytorch.ones(1, 1, 4, 4), grid).shape
    Size([1, 1, 2, 2])
    """
    sizes = input.shape[2:]
    batch, channels, kind = *input.shape[:2], grid.shape[1:-1]
    grid = grid.reshape(batch, 1, math.prod(kind), len(sizes))
    points = [_pixel(grid[..., -1 - d], n, align_corners) for d, n in enumerate(sizes)]
    if mode != "bicubic":
        points = [_inside(p, n, padding_mode, align_corners) for p, n in zip(points, sizes, strict=True)]
    taps = [_TAPS[mode](p) for p in points]
    flat, out = input.flatten(2), None
    for choice in itertools.product(*taps):
        index, weight, valid = 0, 1, True
        for (at, w), n in zip(choice, sizes, strict=True):
            if mode == "bicubic":
                at = _inside(at, n, padding_mode, align_corners)
            valid = (at >= 0) & (at <= n - 1) & valid
            index, weight = index * n + at.clamp(0, n - 1).long(), weight * w
        picked = flat.gather(2, index.expand(-1, channels, -1)) * where(valid, weight, 0)
        out = picked if out is None else out + picked
    return out.reshape(batch, channels, *kind)


@grid_sample.check
def _check(input, grid, mode, padding_mode, align_corners):
    name = "grid_sample()"
    for value, allowed, what in ((mode, MODES, "mode"), (padding_mode, PADDING_MODES, "padding_mode")):
        if value not in allowed:
            raise ValueError(f"{name}: expected {what} to be one of {allowed}, but got: {value!r}")
    if align_corners is None:
        warnings.warn(f"{name}: align_corners is False by default; say align_corners=", stacklevel=4)
    if input.dtype != grid.dtype:
        raise RuntimeError(
            f"{name}: expected input and grid of one dtype, got {input.dtype} and {grid.dtype}"
        )
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"{name}: expected 4D or 5D input and grid with same number of dimensions, "
            f"but got sizes {list(input.shape)} and {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0] or grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"{name}: expected a grid of shape ({input.shape[0]}, …, {input.ndim - 2}) "
            f"for an input of {list(input.shape)}, got {list(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(f"{name}: expected input to have non-empty images, got {list(input.shape)}")
    if mode == "bicubic" and input.ndim == 5:
        raise RuntimeError(f"{name}: bicubic interpolation only supports 4D input, got {list(input.shape)}")
    require_float(input.dtype, "grid_sample")
    return input, grid, mode, padding_mode, bool(align_corners)


def _pixel(x: Tensor, n: int, align: bool) -> Tensor:
    """Returns a coordinate between -1 and 1 in pixels."""
    return (x + 1) * ((n - 1) / 2) if align else ((x + 1) * n - 1) / 2


def _inside(x: Tensor, n: int, padding_mode: str, align: bool) -> Tensor:
    """Returns the coordinates, those outside by the padding mode; at the very ends without gradient."""
    if padding_mode == "reflection":
        x = _reflect(x, n, align)
    if padding_mode != "zeros":
        x = where((x > 0) & (x < n - 1), x, where(x > 0, n - 1, 0.0).to(x.dtype))
    size = x.detach().abs()
    return where(size < LARGEST, x, FAR)  # false for NaN


def _reflect(x: Tensor, n: int, align: bool) -> Tensor:
    """Returns the coordinates reflected at the ends until they lie between them."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if not span:
        return zeros_like(x) * where(x.isfinite(), x, 0)
    x = x - low
    x = where(x < 0, -x, x)
    flips, rest = (x.detach() / span).floor(), fmod(x, span)
    return where(fmod(flips, 2) == 0, rest, span - rest) + low


def _linear_taps(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Returns the pixels around each coordinate and their weights."""
    first = x.detach().floor()
    part = x - first
    return [(first, 1 - part), (first + 1, part)]


def _nearest_tap(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    at = round(x)
    return [(at.detach(), at - at.detach() + 1)]  # weight 1, whose gradient is that of `round`, 0


def _cubic_taps(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    x = where(x.detach().abs() < LARGEST, x, FAR)
    first = x.detach().floor()
    t = x - first

    def near(d):
        return ((A + 2) * d - (A + 3)) * d * d + 1

    def far(d):
        return ((d - 5) * d + 8) * A * d - 4 * A

    weights = far(t + 1), near(t), near(1 - t), far(2 - t)
    return [(first + i - 1, w) for i, w in enumerate(weights)]


_TAPS = {"bilinear": _linear_taps, "nearest": _nearest_tap, "bicubic": _cubic_taps}


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Returns the grid of points for `grid_sample` that an affine map moves the pixels of the result to.

    Args:
        theta: the maps, (N, 2, 3) or (N, 3, 4).
        size: of the result, (N, C, H, W) or (N, C, D, H, W).
        align_corners: see `grid_sample`.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3)

    Raises:
        ValueError: a `theta` of another shape or of integers, or a size that is not positive.
        NotImplementedError: a size of another length.
    Source: Jaderberg et al., 2015, equation 1, https://arxiv.org/abs/1506.02025

    >>> F.affine_grid(mytorch.eye(2, 3).unsqueeze(0), (1, 1, 2, 2)).shape
    Size([1, 2, 2, 2])
    """
    size = tuple(size)
    if align_corners is None:
        warnings.warn("affine_grid(): align_corners is False by default; say align_corners=", stacklevel=2)
    _check_theta(theta, size)
    dims = len(size) - 2
    base = ones((*size[2:], dims + 1), dtype=theta.dtype, device=theta.device)
    for d, n in enumerate(size[2:]):
        ends = linspace(-1, 1, n, dtype=theta.dtype, device=theta.device) if n > 1 else zeros(1)
        if not align_corners:
            ends = ends * ((n - 1) / n)
        base[..., dims - 1 - d] = ends.to(theta).reshape(-1, *[1] * (dims - 1 - d))
    points = base.reshape(1, -1, dims + 1) @ theta.transpose(1, 2)
    return points.reshape(size[0], *size[2:], dims)


def _check_theta(theta: Tensor, size: tuple[int, ...]) -> None:
    if not is_floating_point(theta.dtype):
        raise ValueError(f"affine_grid(): expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            f"affine_grid(): only supports 4D and 5D sizes, for 2D and 3D affine transforms. Got size {size}."
        )
    rows = len(size) - 2
    if theta.ndim != 3 or tuple(theta.shape[-2:]) != (rows, rows + 1):
        raise ValueError(
            f"affine_grid(): expected a batch of {rows}D affine matrices of shape Nx{rows}x{rows + 1} for "
            f"size {size}. Got {list(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"affine_grid(): expected non-zero, positive output size. Got {size}")
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"affine_grid(): expected theta and size of one N, got {theta.shape[0]} and {size[0]}"
        )
