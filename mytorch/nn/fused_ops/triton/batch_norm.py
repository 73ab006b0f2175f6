"""
Batch norm, perhaps after an addition, in training and with the running statistics.

A program for each channel would be too few of them. Programs take rows, each a channel of a sample, and
another kernel adds up what they found, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...functional.add_norm import add_batch_norm
from ...functional.batch_norm import Running, batch_norm
from ..normalization import register
from .channels import gradient, row_moments, row_sums, scale
from .elementwise import single
from .launch import launch, require_dtypes
from .moments import column_sums, contiguous, dtypes_of, merged


@triton.jit
def _channel_moments(
    row_mean_ptr, row_squares_ptr, mean_ptr, variance_ptr, rstd_ptr, samples, channels, length, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean, variance and 1 / its root of channels, from those of their rows in all samples."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mean = tl.zeros((1, BLOCK), tl.float32)
    squares = tl.zeros((1, BLOCK), tl.float32)
    for start in range(0, samples, ROWS):
        sample = start + tl.arange(0, ROWS)[:, None]
        inside, at = (sample < samples) & (channel < channels), sample.to(tl.int64) * channels + channel
        count = tl.minimum(samples - start, ROWS)
        means = single(row_mean_ptr, at, inside)
        center = tl.sum(means, axis=0, keep_dims=True) / count
        apart = tl.where(inside, means - center, 0.0)
        within = single(row_squares_ptr, at, inside) + apart * apart * length
        together = tl.sum(within, axis=0, keep_dims=True)
        before, here = start * 1.0 * length, count * 1.0 * length
        mean, squares = merged(mean, squares, before, center, together, here)
    variance = squares / (samples * length)
    tl.store(mean_ptr + channel, mean, mask=channel < channels)
    tl.store(variance_ptr + channel, variance, mask=channel < channels)
    tl.store(rstd_ptr + channel, 1 / tl.sqrt(variance + eps), mask=channel < channels)


def _moments(x: Any, residual: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """(sum, mean, variance, rstd) of the channels of (N, C, L), or of x + residual."""
    samples, channels, length = x.shape
    total, *of_rows = row_moments(x, residual)
    moments = [np.empty(channels, np.float32, like=x) for _ in range(3)]
    launch(_channel_moments, (triton.cdiv(channels, 32),), *of_rows, *moments, samples, channels, length, eps,
           ROWS=32, BLOCK=32, num_warps=4)  # fmt: skip
    return total, *moments


def _normalize(
    x: Any, residual: Any, mean: Any | Running, variance: Any, weight: Any, bias: Any, training: bool,
    momentum: float, eps: float,
) -> tuple[Any, Any, Callable]:  # fmt: skip
    """See `normalization.register`."""
    require_dtypes(x, residual, weight, bias, *(() if training else (mean, variance)))
    shape, layout = x.shape, (*x.shape[:2], math.prod(x.shape[2:]))
    x, residual, weight, bias = contiguous(x, residual, weight, bias)
    x, residual = x.reshape(layout), None if residual is None else residual.reshape(layout)
    if training:
        running = mean
        x, mean, variance, rstd = _moments(x, residual, eps)
        running.follow(mean, variance)
        y, total = scale(x, None, mean, rstd, weight, bias)
    else:
        mean, rstd = mean.astype(np.float32), 1 / np.sqrt(variance.astype(np.float32) + np.float32(eps))
        y, total = scale(x, residual, mean, rstd, weight, bias)

    dtypes = dtypes_of(weight, bias)

    def backward(of_y: Any, of_total: Any) -> tuple:
        g, of_total = contiguous(of_y, of_total)
        sums = None, None
        if training or any(dtypes):
            sums = [column_sums(s, mean.dtype) for s in row_sums(g, total, mean, rstd, layout[1], True)]
        along, level = sums if training else (None, None)
        share = 1 / max(layout[0] * layout[2], 1)
        dx = gradient(g, of_total, total, mean, rstd, weight, along, level, share, layout[1], True)
        of_parameters = (d if d is None else s.astype(d) for s, d in zip(sums, dtypes, strict=True))
        return dx.reshape(shape), None, None, *of_parameters

    return y.reshape(shape), total.reshape(shape), backward


register("cuda", batch_norm, add_batch_norm, _normalize)
