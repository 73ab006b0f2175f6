"""
Cross entropy of class numbers: a program reads a row of logits once, of any length; it keeps its maximum, the
sum of its powers and its weight; backward makes the gradient from these and the logits.

Nothing waits for the GPU: how many rows count, and what "mean" divides by, stays there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from ....backends.blas import rows
from ....backends.dtypes import is_floating_point
from ...functional.composite import Unsupported
from ...functional.cross_entropy import class_back, class_last, cross_entropy
from .launch import launch, require_dtypes
from .tune import tuned

_BLOCKS = (1024, 2048, 4096)


@triton.jit
def row_totals(row_ptr, n, BLOCK: tl.constexpr):
    """The maximum of a row, and the sum of the powers of what is left without it."""
    largest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + column, mask=column < n, other=-float("inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(x, axis=0))
        shift = tl.where(largest == -float("inf"), 0.0, largest)  # nothing but -inf so far: not NaN yet
        total = total * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return largest, tl.where(largest == -float("inf"), float("nan"), total)


@triton.jit
def row_spread(row_ptr, spread_ptr, largest, n, BLOCK: tl.constexpr):
    """The sum of `spread`, and that of spread (x - largest)."""
    total, level = 0.0, 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + column, mask=column < n, other=0.0).to(tl.float32) - largest
        spread = tl.load(spread_ptr + column, mask=column < n, other=0.0)
        total += tl.sum(spread, axis=0)
        level += tl.sum(tl.where(column < n, spread * x, 0.0), axis=0)
    return total, level


def row_configs(args: dict, chip: Any) -> list[dict]:
    """Blocks no longer than a row."""
    longest = max(triton.next_power_of_2(args["n"]), 32)
    return [{"BLOCK": b, "num_warps": max(1, b // 512)} for b in sorted({min(b, longest) for b in _BLOCKS})]


@tuned(row_configs, key=("n",))
@triton.jit
def _forward(
    x_ptr, target_ptr, weight_ptr, spread_ptr, keep, ignore_index, losses_ptr, kept_ptr, count, n,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss of a row of logits; `keep` is 1 - smoothing."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target_ptr + row)
    counts = label != ignore_index
    known = counts & (label >= 0) & (label < n)
    at_label = tl.load(x_ptr + row * n + label, mask=known, other=float("nan")).to(tl.float32)
    scale = tl.where(counts, 1.0, 0.0)
    if weight_ptr is not None:
        scale = tl.load(weight_ptr + label, mask=known, other=0.0).to(tl.float32)
    largest, total = row_totals(x_ptr + row * n, n, BLOCK)
    spread, level = 0.0, 0.0
    if spread_ptr is not None:
        spread, level = row_spread(x_ptr + row * n, spread_ptr, largest, n, BLOCK)
    pull = keep * scale
    loss = (pull + spread) * tl.log(total) - pull * (at_label - largest) - level
    tl.store(losses_ptr + row, tl.where(counts, loss, 0.0))
    tl.store(kept_ptr + row, largest)
    tl.store(kept_ptr + count + row, total)
    tl.store(kept_ptr + 2 * count + row, scale)


@tuned(row_configs, key=("n",))
@triton.jit
def _backward(
    x_ptr, target_ptr, spread_ptr, all_spread_ptr, keep, ignore_index, kept_ptr, g_ptr, norm_ptr, d_ptr,
    count, n, EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row of the gradient. There is one g, or with EACH one a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(target_ptr + row)
    largest, total = tl.load(kept_ptr + row), tl.load(kept_ptr + count + row)
    pull = keep * tl.load(kept_ptr + 2 * count + row)
    factor = tl.load(g_ptr + row if EACH else g_ptr).to(tl.float32)
    if norm_ptr is not None:
        factor /= tl.load(norm_ptr)
    factor = tl.where(label != ignore_index, factor, 0.0)
    push = pull
    if spread_ptr is not None:
        push += tl.load(all_spread_ptr)
    x = tl.load(x_ptr + row * n + column, mask=column < n).to(tl.float32)
    d = tl.exp(x - largest) * (push * factor / total)
    if spread_ptr is not None:
        d -= factor * tl.load(spread_ptr + column, mask=column < n)
    d -= tl.where(column == label, factor * pull, 0.0)
    tl.store(d_ptr + row * n + column, d.to(d_ptr.dtype.element_ty), mask=column < n)


@cross_entropy.fused("cuda")
def _cross_entropy(x, target, weight, size_average, ignore_index, reduce, reduction, smoothing):
    require_dtypes(x, weight)
    if is_floating_point(target.dtype):
        raise Unsupported("the kernel is for class numbers, not for probabilities")
    shape, kind, keep = x.shape, target.shape, 1.0 - smoothing
    x = rows(class_last(x))
    x, target = np.ascontiguousarray(x, like=x), np.ascontiguousarray(np.reshape(target, -1), like=x)
    count, n = x.shape
    spread = all_spread = None
    if smoothing:
        weights = np.ones_like(x, np.float32, shape=n) if weight is None else weight.astype(np.float32)
        spread = weights * np.float32(smoothing / max(n, 1))
        all_spread = np.sum(spread)
    losses = np.empty_like(x, np.float32, shape=count)
    kept = np.empty_like(x, np.float32, shape=(3, count))
    if count:
        given = (x, target, weight, spread, keep, ignore_index, losses, kept, count, n)
        launch(_forward, (count,), *given)
    norm = np.reshape(np.sum(kept[2]), 1) if reduction == "mean" else None

    def grad(g):
        d = np.empty_like(x)
        g = np.ascontiguousarray(np.reshape(g, -1), like=x)
        sums = None if spread is None else np.reshape(all_spread, 1)
        if d.size:
            launch(
                _backward, lambda meta: (count, triton.cdiv(n, meta["BLOCK"])),
                x, target, spread, sums, keep, ignore_index, kept, g, norm, d, count, n,
                EACH=reduction == "none",
            )  # fmt: skip
        return class_back(d, shape)

    if reduction == "none":
        return np.reshape(losses, kind).astype(x.dtype, copy=False), grad
    total = np.sum(losses) if norm is None else np.sum(losses) / norm[0]
    return np.asarray(total, like=x).astype(x.dtype, copy=False), grad
