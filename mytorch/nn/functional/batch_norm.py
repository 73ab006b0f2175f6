"""Batch norm, group norm and instance norm of (N, C, ...)."""

from __future__ import annotations

import math

import numpy as np

from ...autograd import no_grad
from ...backends.blas import column_sums, dots, row_sums, rows
from ...backends.device import RawArray, on
from ...core.tensor import Tensor, raw_of
from ...ops import contiguous
from ...ops.inplace import write
from .composite import composite, require_float
from .normalization import Sums, same_dtype, scale_and_shift, x_hat_vjp


def _channel_sums(x: RawArray) -> RawArray:
    n, channels, length = x.shape
    x = x if length == 1 else row_sums(rows(x))
    return column_sums(np.reshape(x, (n, channels)))[:, None]


CHANNELS = Sums(_channel_sums, lambda a, b: dots("ncl->c", a, b)[:, None])  # of (N, C, L)


@composite(order=contiguous)
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel over the batch, then scales and shifts it.

        y = (x - mean) / sqrt(variance + eps) * weight + bias

    Args:
        input: (N, C, ...)
        running_mean, running_var: (C,), used without `training`. With `training` the batch's statistics are
            used, and the running ones are updated: running = (1 - momentum) running + momentum batch, where
            the batch's variance is the unbiased one.
        weight, bias: (C,) or None

    Raises:
        ValueError: one value per channel in training; eps is not positive; only one running statistic.
        RuntimeError: shapes or dtypes do not match; no running statistics without training.
    Source: Ioffe & Szegedy, "Batch Normalization", 2015, https://arxiv.org/abs/1502.03167

    >>> F.batch_norm(mytorch.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-0.99999]
            [ 0.99999]])
    """
    dims, each = (0, *range(2, input.ndim)), (-1, *[1] * (input.ndim - 2))
    if training:
        running = running_mean  # the checker replaces it by a `Running`
        mean = input.mean(dims, True)
        variance = (input - mean).square().mean(dims, True)
        running.update(mean.detach().flatten(), variance.detach().flatten())
    else:
        mean, variance = running_mean.reshape(each), running_var.reshape(each)
    y = (input - mean) * (variance + eps).rsqrt()
    y = y if weight is None else y * weight.reshape(each)
    return y if bias is None else y + bias.reshape(each)


@batch_norm.check
def _check_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps):
    """Raises the errors of a wrong call; in training running_mean becomes a `Running`, running_var None."""
    if input.data.shape == (0,):  # no channels; PyTorch accepts it
        return input.clone()
    if training:
        _check_values("batch_norm", input)
    if eps < 0 or (training and eps == 0):
        kind = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {kind}, but got {eps}")
    check_channels("batch_norm", input, running_mean, running_var, weight, bias)
    if training and (running_mean is None) != (running_var is None):
        raise ValueError("batch_norm(): running_mean and running_var must both be given, or neither")
    if training:
        count = input.numel() // max(input.shape[1], 1)
        running_mean, running_var = Running(running_mean, running_var, momentum, count), None
    elif running_mean is None or running_var is None:
        missing = "running_mean" if running_mean is None else "running_var"
        raise RuntimeError(f"batch_norm(): {missing} must be defined in evaluation mode")
    return input, running_mean, running_var, weight, bias, training, momentum, eps


def _check_values(name, input):
    if input.ndim < 2:
        raise IndexError(f"{name}(): expected an input with a dim of channels, got shape {input.data.shape}")
    shape = input.data.shape
    if math.prod((shape[0], *shape[2:])) == 1:
        raise ValueError(f"{name}(): expected more than 1 value per channel when training, got {shape}")


def check_channels(name, input, running_mean, running_var, weight, bias):
    require_float(input.dtype, name)
    channels = input.shape[1] if input.ndim > 1 else 0
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for key, x in given.items():
        if x is None:
            continue
        if x.data.shape != (channels,):
            raise RuntimeError(f"{name}(): expected {key} of shape ({channels},), got {x.data.shape}")
        same_dtype(name, input, key, x)
        if key.startswith("running") and x.requires_grad:
            raise RuntimeError(f"{name}() is not differentiable with respect to {key}, which requires grad")


def as_channels(x):
    return np.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))


class Running:
    """The running statistics in training, which the batch's statistics update in place.

    They are updated once: a second derivative runs the reference again.

    Args:
        mean, variance: (C,) or None.
        momentum: the weight of the batch.
        count: the number of elements per mean.
    """

    def __init__(self, mean: Tensor | None, variance: Tensor | None, momentum: float, count: int):
        self.mean, self.variance, self.momentum, self.count = mean, variance, momentum, count
        self.waiting = mean is not None and count > 0

    def update(self, mean: RawArray, variance: RawArray) -> None:
        """Updates with the batch's mean and biased variance, (C,)."""
        if not self.waiting:
            return
        self.waiting = False
        unbiased = self.count / max(self.count - 1, 1) * self.momentum
        with no_grad(), on(self.mean.device):
            for running, batch, factor in (
                (self.mean, mean, self.momentum),
                (self.variance, variance, unbiased),
            ):
                write(running, raw_of(running) * (1 - self.momentum) + raw_of(batch) * factor)


@batch_norm.manual
def _batch_norm(x, mean, variance, weight, bias, training, momentum, eps):
    shape, x = x.shape, as_channels(x)
    weight, bias = (None if p is None else np.reshape(p, (-1, 1)) for p in (weight, bias))
    if training:
        running, inv_n = mean, x.dtype.type(1 / max(x.size // max(x.shape[1], 1), 1))
        x_hat, mean, variance = centre(x, inv_n)
        running.update(mean[:, 0], variance[:, 0])
    else:
        x_hat, variance = x - np.reshape(mean, (-1, 1)), np.reshape(variance, (-1, 1))
    rstd = 1 / np.sqrt(variance + variance.dtype.type(eps))
    x_hat *= rstd
    vjp = x_hat_vjp(x_hat, rstd, CHANNELS, inv_n) if training else lambda d: d * rstd
    y, dx, dweight, dbias = scale_and_shift(x_hat, weight, bias, vjp, CHANNELS, shape, x.shape[1:2])
    return y, (dx, None, None, dweight, dbias)


def centre(x, inv_n):
    """Returns (x - mean, mean, variance) of the channels of (N, C, L); inv_n is 1 / (N L)."""
    mean = CHANNELS.total(x) * inv_n
    centred = x - mean
    shift = CHANNELS.total(centred) * inv_n  # corrects the rounding of an offset in the mean
    centred -= shift
    mean = np.where(np.isfinite(shift), mean + shift, mean)
    return centred, mean, CHANNELS.dot(centred, centred) * inv_n
