"""
Cross entropy of class indices: a program reads a row of logits once, of any length, and saves its maximum,
its sum of exponentials and its weight; backward computes the gradient from these and the logits.

Nothing waits for the GPU: the number of rows that aren't ignored, and the divisor of "mean", stay on it.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from ....backends.blas import rows
from ....backends.dtypes import is_floating_point
from ...functional.composite import Unsupported
from ...functional.cross_entropy import class_back, class_last, cross_entropy
from .chips import Chip
from .launch import launch, require_dtypes
from .sizes import cdiv, next_power_of_2
from .tune import Config, tuned

_BLOCKS = (1024, 2048, 4096)


@triton.jit
def row_totals(row_ptr, n, BLOCK: tl.constexpr):
    """The maximum of a row, and the sum of exp(x - maximum)."""
    # Shapes: row (n,)
    largest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + column, mask=column < n, other=-float("inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(x, axis=0))
        shift = tl.where(largest == -float("inf"), 0.0, largest)  # all -inf so far: not NaN yet
        total = total * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return largest, tl.where(largest == -float("inf"), float("nan"), total)


@triton.jit
def row_smoothing(row_ptr, smooth_ptr, largest, n, BLOCK: tl.constexpr):
    """The sums of `smooth` and of smooth (x - largest)."""
    # Shapes: row, smooth (n,)
    total, smooth_x = 0.0, 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + column, mask=column < n, other=0.0).to(tl.float32) - largest
        smooth = tl.load(smooth_ptr + column, mask=column < n, other=0.0)
        total += tl.sum(smooth, axis=0)
        smooth_x += tl.sum(tl.where(column < n, smooth * x, 0.0), axis=0)
    return total, smooth_x


def row_configs(args: dict, chip: Chip) -> list[Config]:
    """Returns configurations whose blocks are no longer than a row."""
    longest = max(next_power_of_2(args["n"]), 32)
    return [{"BLOCK": b, "num_warps": max(1, b // 512)} for b in sorted({min(b, longest) for b in _BLOCKS})]


@tuned(row_configs, key=("n",))
@triton.jit
def _forward(
    x_ptr, target_ptr, weight_ptr, smooth_ptr, confidence, ignore_index, losses_ptr, saved_ptr, count, n,
    BLOCK: tl.constexpr,
):
    """The loss of a row of logits; `smooth` is smoothing / C times the weight of each class."""
    # Shapes: x (count, n); target, losses (count,); weight, smooth (n,); saved (3, count)
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target_ptr + row)
    counts = label != ignore_index
    known = counts & (label >= 0) & (label < n)
    at_label = tl.load(x_ptr + row * n + label, mask=known, other=float("nan")).to(tl.float32)
    scale = tl.where(counts, 1.0, 0.0)
    if weight_ptr is not None:
        scale = tl.load(weight_ptr + label, mask=known, other=0.0).to(tl.float32)
    largest, total = row_totals(x_ptr + row * n, n, BLOCK)
    smooth, smooth_x = 0.0, 0.0
    if smooth_ptr is not None:
        smooth, smooth_x = row_smoothing(x_ptr + row * n, smooth_ptr, largest, n, BLOCK)
    target_weight = confidence * scale
    loss = (target_weight + smooth) * tl.log(total) - target_weight * (at_label - largest) - smooth_x
    tl.store(losses_ptr + row, tl.where(counts, loss, 0.0))
    tl.store(saved_ptr + row, largest)
    tl.store(saved_ptr + count + row, total)
    tl.store(saved_ptr + 2 * count + row, scale)


@tuned(row_configs, key=("n",))
@triton.jit
def _backward(
    x_ptr, target_ptr, smooth_ptr, sum_smooth_ptr, confidence, ignore_index, saved_ptr, g_ptr, norm_ptr,
    dx_ptr, count, n, EACH: tl.constexpr, BLOCK: tl.constexpr,
):
    """A block of a row of the gradient. There is one g for all rows, or with EACH one a row."""
    # Shapes: x, dx (count, n); target (count,); smooth (n,); sum_smooth, norm (1,); saved (3, count);
    # g (1,) or, with EACH, (count,)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(target_ptr + row)
    largest, total = tl.load(saved_ptr + row), tl.load(saved_ptr + count + row)
    target_weight = confidence * tl.load(saved_ptr + 2 * count + row)
    factor = tl.load(g_ptr + row if EACH else g_ptr).to(tl.float32)
    if norm_ptr is not None:
        factor /= tl.load(norm_ptr)
    factor = tl.where(label != ignore_index, factor, 0.0)
    exp_factor = target_weight
    if smooth_ptr is not None:
        exp_factor += tl.load(sum_smooth_ptr)
    x = tl.load(x_ptr + row * n + column, mask=column < n).to(tl.float32)
    dx = tl.exp(x - largest) * (exp_factor * factor / total)
    if smooth_ptr is not None:
        dx -= factor * tl.load(smooth_ptr + column, mask=column < n)
    dx -= tl.where(column == label, factor * target_weight, 0.0)
    tl.store(dx_ptr + row * n + column, dx.to(dx_ptr.dtype.element_ty), mask=column < n)


@cross_entropy.fused("cuda")
def _cross_entropy(x, target, weight, ignore_index, reduction, smoothing, dtype):
    require_dtypes(x, weight)
    if is_floating_point(target.dtype):
        raise Unsupported("the kernel is for class indices, not for probabilities")
    shape, kind, confidence = x.shape, target.shape, 1.0 - smoothing
    dtype = dtype or x.dtype
    x = rows(class_last(x))
    x, target = np.ascontiguousarray(x, like=x), np.ascontiguousarray(np.reshape(target, -1), like=x)
    count, n = x.shape
    smooth = sum_smooth = None
    if smoothing:
        weights = np.ones_like(x, np.float32, shape=n) if weight is None else weight.astype(np.float32)
        smooth = weights * np.float32(smoothing / max(n, 1))
        sum_smooth = np.sum(smooth)
    losses = np.empty_like(x, np.float32, shape=count)
    saved = np.empty_like(x, np.float32, shape=(3, count))
    if count:
        given = (x, target, weight, smooth, confidence, ignore_index, losses, saved, count, n)
        launch(_forward, (count,), *given)
    norm = np.reshape(np.sum(saved[2]), 1) if reduction == "mean" else None

    def vjp(g):
        dx = np.empty_like(x)
        g = np.ascontiguousarray(np.reshape(g, -1), like=x)
        sums = None if smooth is None else np.reshape(sum_smooth, 1)
        if dx.size:
            launch(
                _backward, lambda meta: (count, cdiv(n, meta["BLOCK"])),
                x, target, smooth, sums, confidence, ignore_index, saved, g, norm, dx, count, n,
                EACH=reduction == "none",
            )
        return class_back(dx, shape)

    if reduction == "none":
        return np.reshape(losses, kind).astype(dtype, copy=False), vjp
    total = np.sum(losses) if norm is None else np.sum(losses) / norm[0]
    return np.asarray(total, like=x).astype(dtype, copy=False), vjp
