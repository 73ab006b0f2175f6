"""Convolutions with few channels a group: a row of the result is the sum of shifted rows of the input."""

from __future__ import annotations

import numpy as np

from ....backends.jit import device, kernel, prange
from .approximations import ZERO
from .convolution_windows import meeting, put
from .memory import floats


@kernel
def forward_rows(x, w, bias, y, steps, form, groups):
    """One channel of one image at a time; `y` and `steps` as in `convolution._forward`."""
    channels, all_outs = w.shape[1], w.shape[0]
    outs = all_outs // groups
    for task in prange(x.shape[0] * all_outs):
        n, o = task // all_outs, task % all_outs
        sums = np.empty(form.columns, np.float32)
        for i in range(form.rows):
            sums[:] = ZERO
            for c in range(channels):
                for a in range(form.kernel_height):
                    h = i * form.stride + a * form.dilation - form.padding
                    if 0 <= h < form.height:
                        row = x[n, o // outs * channels + c, h]
                        for b in range(form.kernel_width):
                            offset = b * form.dilation_x - form.padding_x
                            begin, end = meeting(offset, form.stride_x, form.width, 0, form.columns)
                            add_row(row, w[o, c, a, b], offset, form.stride_x, sums, begin, end)
            line = floats(y + 4 * (n * steps[0] + o * steps[1] + i * steps[2]), form.columns * steps[3])
            put(sums, bias[o], line, steps[3])


@device
def add_row(row, factor, offset, stride, sums, begin, end):
    if begin == end:
        return
    target, source = sums[begin:end], row[begin * stride + offset :]
    if stride == 1:
        for j in range(target.size):
            target[j] += factor * source[j]
    else:
        for j in range(target.size):
            target[j] += factor * source[j * stride]


@kernel
def weight_rows(x, dy, out, form, groups):
    """The gradient of the weight, one kernel at a time, as products of rows."""
    all_outs, channels = out.shape[:2]
    outs = all_outs // groups
    for task in prange(all_outs * channels):
        o, c = task // channels, task % channels
        for a in range(form.kernel_height):
            for b in range(form.kernel_width):
                h, w = a * form.dilation - form.padding, b * form.dilation_x - form.padding_x
                upper, lower = meeting(h, form.stride, form.height, 0, form.rows)
                begin, end = meeting(w, form.stride_x, form.width, 0, form.columns)
                total = 0.0
                if begin < end:
                    for n in range(x.shape[0]):
                        for i in range(upper, lower):
                            row = x[n, o // outs * channels + c, i * form.stride + h]
                            total += dot(
                                dy[n, o, i, begin:end], row[begin * form.stride_x + w :], form.stride_x
                            )
                out[o, c, a, b] = total


@device
def dot(x, y, stride):
    """sum_j x[j] y[j stride]"""
    total = ZERO
    if stride == 1:
        for j in range(x.size):
            total += x[j] * y[j]
    else:
        for j in range(x.size):
            total += x[j] * y[j * stride]
    return total
