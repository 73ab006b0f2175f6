"""
Batch norm, in training and with the running statistics.

One program for each channel would be too few. Programs take rows, each a channel of a sample, and another
kernel adds up their results, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from ....backends.device import RawArray
from ...functional.batch_norm import Running, batch_norm
from .channels import input_gradient, row_moments, row_sums, scale
from .elementwise import load32
from .launch import launch, require_dtypes
from .moments import centre, column_sums, contiguous, dtypes_of, merge
from .sizes import cdiv


@triton.jit
def _channel_moments(
    row_mean_ptr, row_squares_ptr, mean_ptr, variance_ptr, rstd_ptr, samples, channels, length, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The mean, variance and rstd of channels, from the moments of their rows in all samples."""
    # Shapes: row_mean, row_squares (samples, channels); mean, variance, rstd (channels,)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mean = tl.zeros((1, BLOCK), tl.float32)
    squares = tl.zeros((1, BLOCK), tl.float32)
    for start in range(0, samples, ROWS):
        sample = start + tl.arange(0, ROWS)[:, None]
        inside, at = (sample < samples) & (channel < channels), sample.to(tl.int64) * channels + channel
        count = tl.minimum(samples - start, ROWS)
        means = load32(row_mean_ptr, at, inside)
        block_mean, distance = centre(means, inside, count, 0)
        row_squares = load32(row_squares_ptr, at, inside) + distance * distance * length
        block_squares = tl.sum(row_squares, axis=0, keep_dims=True)
        size, block_size = start * 1.0 * length, count * 1.0 * length
        mean, squares = merge(mean, squares, size, block_mean, block_squares, block_size)
    variance = squares / (samples * length)
    tl.store(mean_ptr + channel, mean, mask=channel < channels)
    tl.store(variance_ptr + channel, variance, mask=channel < channels)
    tl.store(rstd_ptr + channel, 1 / tl.sqrt(variance + eps), mask=channel < channels)


def _moments(x: RawArray, eps: float) -> list[RawArray]:
    """Returns [mean, variance, rstd] of the channels of (N, C, L)."""
    samples, channels, length = x.shape
    moments = [np.empty(channels, np.float32, like=x) for _ in range(3)]
    launch(_channel_moments, (cdiv(channels, 32),), *row_moments(x), *moments,
           samples, channels, length, eps, ROWS=32, BLOCK=32, num_warps=4)
    return moments


@batch_norm.fused("cuda")
def _batch_norm(
    x: RawArray, mean: RawArray | Running, variance: RawArray | None, weight: RawArray | None,
    bias: RawArray | None, training: bool, momentum: float, eps: float,
) -> tuple[RawArray, Callable]:
    require_dtypes(x, weight, bias, *(() if training else (mean, variance)))
    shape, layout = x.shape, (*x.shape[:2], math.prod(x.shape[2:]))
    x, weight, bias = contiguous(x, weight, bias)
    x = x.reshape(layout)
    if training:
        running = mean
        mean, variance, rstd = _moments(x, eps)
        running.update(mean, variance)
    else:
        mean, rstd = mean.astype(np.float32), 1 / np.sqrt(variance.astype(np.float32) + np.float32(eps))
    y, dtypes = scale(x, mean, rstd, weight, bias), dtypes_of(weight, bias)

    def vjp(dy: RawArray) -> tuple:
        (dy,) = contiguous(dy)
        sums = None, None
        if training or any(dtypes):
            sums = [column_sums(s, mean.dtype) for s in row_sums(dy, x, mean, rstd, layout[1], True)]
        sum_dxhat, sum_d = sums if training else (None, None)
        inv_n = 1 / max(layout[0] * layout[2], 1)
        dx = input_gradient(dy, x, mean, rstd, weight, sum_dxhat, sum_d, inv_n, layout[1], True)
        dparameters = (d if d is None else s.astype(d) for s, d in zip(sums, dtypes, strict=True))
        return dx.reshape(shape), None, None, *dparameters

    return y.reshape(shape), vjp
