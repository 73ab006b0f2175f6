"""unfold, the windows of images as columns of a matrix, and fold, its adjoint."""

from __future__ import annotations

import math

import numpy as np

from ...core.op import op, require_tensor
from ...core.tensor import Tensor
from ...ops import squeeze, unsqueeze
from .im2col import Geometry, from_columns, raw, to_columns
from .types import IntOrInts
from .windows import Ints, ntuple
from .windows import output_size as count_windows


@op(half="float16")
def _unfold(x, form):
    """Returns (N, C, H, W) as (N, C kernel, windows)."""
    shape = (len(x), x.shape[1] * math.prod(form.kernel), math.prod(form.out))
    columns = np.moveaxis(to_columns(x, form), 3, 0).copy()
    return np.reshape(columns, shape), lambda g: _fold.dual(g, form)


@op
def _fold(columns, form):
    """Returns (N, C kernel, windows) summed to (N, C, H, W)."""
    channels = columns.shape[1] // math.prod(form.kernel)
    columns = np.moveaxis(np.reshape(columns, (len(columns), channels, *form.kernel, *form.out)), 0, 3)
    return _sums(columns, form).copy(), lambda g: _unfold.dual(g, form)


_sums = raw(from_columns)


def unfold(
    input: Tensor, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Returns the windows of images, each as a column; overlapping windows repeat elements.

    Args:
        input: (N, C, H, W), or (C, H, W) without the batch.
        kernel_size: of the windows; one int or (height, width), as the next three.
        dilation: from one element of a window to the next.
        padding: zeros around the image at each end.
        stride: from one window to the next.

    Returns:
        (N, C * kernel height * kernel width, number of windows)

    Raises:
        NotImplementedError: an integer dtype.
        RuntimeError: shapes or arguments do not match.

    >>> F.unfold(mytorch.ones(1, 1, 3, 3), kernel_size=2).shape
    Size([1, 4, 4])
    """
    require_tensor(input, "unfold")
    _check_dtype("unfold", input)
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(
            "unfold(): expected an input of shape (C, H, W) or (N, C, H, W), of which only N may be 0, "
            f"got {tuple(input.shape)}"
        )
    form = _geometry("unfold", tuple(input.shape[-2:]), kernel_size, dilation, padding, stride)
    if min(form.out) < 1:
        raise RuntimeError(
            f"unfold(): no window fits into the image of size {form.size}: kernel_size {form.kernel}, "
            f"dilation {form.dilation}, padding {padding}"
        )
    return _unfold(input, form) if input.ndim == 4 else squeeze(_unfold(unsqueeze(input, 0), form), 0)


def fold(
    input: Tensor, output_size: IntOrInts, kernel_size: IntOrInts, dilation: IntOrInts = 1,
    padding: IntOrInts = 0, stride: IntOrInts = 1,
) -> Tensor:
    """Returns the adjoint of `unfold`: images to which each window is added at its position.

    Args:
        input: (N, C * kernel height * kernel width, number of windows), or without N.
        output_size: (H, W), or one int for both.
        kernel_size, dilation, padding, stride: of the `unfold` from images of that size.

    Returns:
        (N, C, H, W)

    Raises:
        NotImplementedError: an integer dtype.
        RuntimeError: shapes or arguments do not match.

    >>> F.fold(mytorch.ones(1, 4, 4), (4, 4), kernel_size=2, stride=2).shape
    Size([1, 1, 4, 4])
    """
    require_tensor(input, "fold")
    _check_dtype("fold", input)
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "fold(): expected an input of shape (C * kernel, windows) or (N, C * kernel, windows), of which "
            f"only N may be 0, got {tuple(input.shape)}"
        )
    size = ntuple(output_size, 2, "fold(): output_size", 1)
    form = _geometry("fold", size, kernel_size, dilation, padding, stride)
    if input.shape[-2] % math.prod(form.kernel):
        raise RuntimeError(
            f"fold(): expected rows by the product of kernel_size {form.kernel}, got {input.shape[-2]}"
        )
    if min(form.out) < 1 or input.shape[-1] != math.prod(form.out):
        raise RuntimeError(
            f"fold(): an image of size {size} has {form.out[0]} x {form.out[1]} windows of kernel_size "
            f"{form.kernel}, dilation {form.dilation}, padding {padding} and stride {form.stride}, "
            f"got {input.shape[-1]} columns"
        )
    return _fold(input, form) if input.ndim == 3 else squeeze(_fold(unsqueeze(input, 0), form), 0)


def _geometry(
    name: str, size: Ints, kernel_size: IntOrInts, dilation: IntOrInts, padding: IntOrInts, stride: IntOrInts
) -> Geometry:
    kernel = ntuple(kernel_size, 2, f"{name}(): kernel_size", 1)
    stride = ntuple(stride, 2, f"{name}(): stride", 1)
    padding = ntuple(padding, 2, f"{name}(): padding", 0)
    dilation = ntuple(dilation, 2, f"{name}(): dilation", 1)
    out = tuple(count_windows(*args) for args in zip(size, kernel, stride, padding, dilation, strict=True))
    return Geometry(size, kernel, out, stride, tuple((p, p) for p in padding), dilation, 1)


def _check_dtype(name: str, input: Tensor) -> None:
    if input.dtype.kind in "iu":
        raise NotImplementedError(f"{name}(): not implemented for dtype {input.dtype}")
