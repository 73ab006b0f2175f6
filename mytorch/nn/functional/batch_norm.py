"""Normalization of images and the like, (N, C, ...), over the batch, groups of channels or instances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...autograd import no_grad
from ...backends.blas import column_sums, dots, row_sums, rows
from ...backends.device import on
from ...core.op import op
from ...core.tensor import Tensor, raw_of
from ...core.upcast import upcast
from ...ops.inplace import write
from .activations import require_float
from .composite import composite
from .normalization import Over, pull_back, same_dtype, scale_and_shift, standardize


def _channel_sums(x: Any) -> Any:
    n, channels, length = x.shape
    x = x if length == 1 else row_sums(rows(x))
    return column_sums(np.reshape(x, (n, channels)))[:, None]


CHANNELS = Over(_channel_sums, lambda a, b: dots("ncl->c", a, b)[:, None])  # of (N, C, L)


@composite
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel over the batch, then scale and shift it.

        y = (x - mean) / sqrt(variance + eps) * weight + bias

    Args:
        input: (N, C, ...)
        running_mean, running_var: (C,); without `training` they are the mean and the variance. In training
            those of the batch are, and they follow along:
            running = (1 - momentum) running + momentum batch, where the batch's variance is the unbiased one.
        weight, bias: (C,) or None

    Raises:
        ValueError: one value a channel in training; eps is not positive; one of the two running ones.
        RuntimeError: shapes or dtypes don't fit; no running statistics without training.
    Source: Ioffe & Szegedy, "Batch Normalization", 2015, https://arxiv.org/abs/1502.03167
    """
    dims, each = (0, *range(2, input.ndim)), (-1, *[1] * (input.ndim - 2))
    if training:
        running = running_mean  # see the check
        mean = input.mean(dims, True)
        variance = (input - mean).square().mean(dims, True)
        running.follow(mean.detach().flatten(), variance.detach().flatten())
    else:
        mean, variance = running_mean.reshape(each), running_var.reshape(each)
    y = (input - mean) * (variance + eps).rsqrt()
    y = y if weight is None else y * weight.reshape(each)
    return y if bias is None else y + bias.reshape(each)


@batch_norm.check
def _check_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps):
    """In training the variants get a `Running` in place of running_mean, and None for running_var."""
    if input.data.shape == (0,):  # no channels, but PyTorch lets it pass
        return input.clone()
    if training:
        _check_values("batch_norm", input)
    if eps < 0 or (training and eps == 0):
        kind = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {kind}, but got {eps}")
    _check_channels("batch_norm", input, running_mean, running_var, weight, bias)
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


def _check_channels(name, input, running_mean, running_var, weight, bias):
    require_float(input, name)
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


def _three_dims(x):
    return np.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))


class Running:
    """The running statistics in training, which follow those of the batch in place.

    They do so once: for a second derivative the reference runs again.

    Args:
        mean, variance: (C,) or None.
        momentum: the weight of the batch.
        count: how many elements of the batch share a mean.
    """

    def __init__(self, mean: Tensor | None, variance: Tensor | None, momentum: float, count: int):
        self.mean, self.variance, self.momentum, self.count = mean, variance, momentum, count
        self.waiting = mean is not None and count > 0

    def follow(self, mean: Any, variance: Any) -> None:
        """Take in the batch's mean and its biased variance, (C,), Tensors or raw arrays."""
        if not self.waiting:
            return
        self.waiting = False
        of_variance = self.momentum * self.count / max(self.count - 1, 1)
        with no_grad(), on(self.mean.device):
            for running, batch, share in (
                (self.mean, mean, self.momentum),
                (self.variance, variance, of_variance),
            ):
                write(running, running.data._array * (1 - self.momentum) + raw_of(batch) * share)


@batch_norm.manual
def _batch_norm(x, mean, variance, weight, bias, training, momentum, eps):
    shape, x = x.shape, _three_dims(x)
    weight, bias = (None if p is None else np.reshape(p, (-1, 1)) for p in (weight, bias))
    if training:
        running, share = mean, x.dtype.type(1 / max(x.size // max(x.shape[1], 1), 1))
        x_hat, mean, variance = _centred(x, share)
        running.follow(mean[:, 0], variance[:, 0])
    else:
        x_hat, variance = x - np.reshape(mean, (-1, 1)), np.reshape(variance, (-1, 1))
    rstd = 1 / np.sqrt(variance + variance.dtype.type(eps))
    x_hat *= rstd
    pull = pull_back(x_hat, rstd, CHANNELS, share) if training else lambda d: d * rstd
    y, grad_x, grad_weight, grad_bias = scale_and_shift(
        x_hat, weight, bias, pull, CHANNELS, shape, x.shape[1:2]
    )
    return y, (grad_x, None, None, grad_weight, grad_bias)


def _centred(x, share):
    """(x - mean, mean, variance) of the channels of (N, C, L); share is 1 / (N L)."""
    mean = CHANNELS.total(x) * share
    centred = x - mean
    return centred, mean, CHANNELS.dot(centred, centred) * share


@composite
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize groups of channels, each sample for itself, then scale and shift each channel.

        y = (x - E[x]) / sqrt(Var[x] + eps) * weight + bias, the statistics over C / num_groups channels

    Args:
        input: (N, C, ...)
        weight, bias: (C,) or None

    Raises:
        ValueError: one value a group.
        RuntimeError: num_groups doesn't divide C; shapes or dtypes don't fit.
    Source: Wu & He, "Group Normalization", 2018, https://arxiv.org/abs/1803.08494
    """
    shape, each = input.shape, (-1, *[1] * (input.ndim - 2))
    x = input.reshape(shape[0], num_groups, math.prod(shape[1:]) // num_groups)
    centred = x - x.mean(-1, True)
    y = (centred * (centred.square().mean(-1, True) + eps).rsqrt()).reshape(shape)
    y = y if weight is None else y * weight.reshape(each)
    return y if bias is None else y + bias.reshape(each)


@group_norm.check
def _check_group_norm(input, num_groups, weight, bias, eps):
    shape = input.data.shape
    if len(shape) < 2:
        raise RuntimeError(f"group_norm(): expected at least 2 dimensions for input tensor, got {shape}")
    if num_groups == 0:
        raise ZeroDivisionError("group_norm(): num_groups is 0")
    if num_groups < 0:
        raise RuntimeError(f"group_norm(): expected num_groups to be greater than 0, got {num_groups}")
    if math.prod((shape[0] * shape[1] // num_groups, *shape[2:])) == 1:
        raise ValueError(f"group_norm(): expected more than 1 value per group, got {shape}")
    if shape[1] % num_groups:
        raise RuntimeError(
            f"group_norm(): expected the number of channels to be divisible by num_groups, but got an input "
            f"of shape {shape} and num_groups={num_groups}"
        )
    _check_channels("group_norm", input, None, None, weight, bias)


@group_norm.manual
def _group_norm(x, num_groups, weight, bias, eps):
    shape, x = x.shape, _three_dims(x)
    groups = x.shape[0] * num_groups
    x_hat, pull_rows = standardize(np.reshape(x, (groups, x.size // max(groups, 1))), eps)
    matrix = x_hat.shape
    weight, bias = (None if p is None else p[:, None] for p in (weight, bias))
    y, grad_x, grad_weight, grad_bias = scale_and_shift(
        np.reshape(x_hat, x.shape), weight, bias, lambda d: pull_rows(np.reshape(d, matrix)),
        CHANNELS, shape, x.shape[1:2],
    )  # fmt: skip
    return y, (grad_x, None, grad_weight, grad_bias)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    auto: bool = False,
    fused: bool | None = None,
) -> Tensor:
    """Normalize each channel of each sample, then scale and shift it: `group_norm`, a channel a group.

    Args:
        input: (N, C, ...)
        running_mean, running_var: (C,) or None; they follow the means over the batch, as in `batch_norm`.
            Without `use_input_stats` they are the mean and the variance.
        weight, bias: (C,) or None
        auto, fused: which variant of `group_norm` runs, or of `batch_norm` without `use_input_stats`.

    Raises:
        ValueError: one value a channel; one of the two running ones.
        RuntimeError: shapes or dtypes don't fit; no running statistics without `use_input_stats`.
    Source: Ulyanov, Vedaldi & Lempitsky, "Instance Normalization", 2016, https://arxiv.org/abs/1607.08022
    """
    choice: Any = {"auto": auto, "fused": fused}
    check_instances("instance_norm", input, running_mean, running_var, weight, bias, use_input_stats)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, **choice)
    follow_instances(input, running_mean, running_var, momentum)
    return group_norm(input, input.shape[1], weight, bias, eps, **choice)


def check_instances(
    name: str,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    use_input_stats: bool,
) -> None:
    """Raise the errors of a wrong call of `instance_norm`."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                f"{name}(): expected running_mean and running_var to be defined without use_input_stats"
            )
        return
    shape = input.data.shape
    if math.prod(shape[2:]) == 1:
        raise ValueError(
            f"{name}(): expected more than 1 spatial element when training, got input size {shape}"
        )
    if (running_mean is None) != (running_var is None):
        raise ValueError(f"{name}(): running_mean and running_var must both be given, or neither")
    _check_channels(name, input, running_mean, running_var, weight, bias)


def follow_instances(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> None:
    """Let the running statistics, if there are any, follow the means of the instances' over the batch."""
    if running_mean is not None:
        n, channels, length = (*input.shape[:2], math.prod(input.shape[2:]))
        moments = _moments(input.reshape(1, n * channels, length))
        running = Running(running_mean, running_var, momentum, length if n else 0)
        running.follow(*(m.reshape(n, channels).mean(0) for m in moments))


@op(half=True)
def _moments(x):
    """The mean and variance of each channel of (N, C, L), in float32 for half precision."""
    x = upcast(x)
    _, mean, variance = _centred(x, x.dtype.type(1 / max(x.size // max(x.shape[1], 1), 1)))
    return (mean[:, 0], variance[:, 0]), None
