"""group_norm and instance_norm of (N, C, ...)."""

from __future__ import annotations

import math

import numpy as np

from ...core.op import op
from ...core.tensor import Tensor
from ...core.upcast import upcast
from ...ops import contiguous
from .batch_norm import CHANNELS, Running, as_channels, batch_norm, centre, check_channels
from .composite import composite
from .normalization import scale_and_shift, standardize


@composite(order=contiguous)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes groups of channels of each sample, then scales and shifts each channel.

        y = (x - E[x]) / sqrt(Var[x] + eps) * weight + bias, the statistics over C / num_groups channels

    Args:
        input: (N, C, ...)
        weight, bias: (C,) or None

    Raises:
        ValueError: one value per group.
        RuntimeError: num_groups doesn't divide C; shapes or dtypes do not match.
    Source: Wu & He, "Group Normalization", 2018, https://arxiv.org/abs/1803.08494

    >>> F.group_norm(mytorch.ones(1, 4, 5), 2).shape
    Size([1, 4, 5])
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
    check_channels("group_norm", input, None, None, weight, bias)


@group_norm.manual
def _group_norm(x, num_groups, weight, bias, eps):
    shape, x = x.shape, as_channels(x)
    groups = x.shape[0] * num_groups
    x_hat, vjp_of_rows = standardize(np.reshape(x, (groups, x.size // max(groups, 1))), eps)
    matrix = x_hat.shape
    weight, bias = (None if p is None else p[:, None] for p in (weight, bias))
    y, dx, dweight, dbias = scale_and_shift(
        np.reshape(x_hat, x.shape), weight, bias, lambda d: vjp_of_rows(np.reshape(d, matrix)),
        CHANNELS, shape, x.shape[1:2],
    )
    return y, (dx, None, dweight, dbias)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5, *, auto: bool = False, fused: bool | None = None,
) -> Tensor:
    """Normalizes each channel of each sample, then scales and shifts it: `group_norm` with C groups.

    Args:
        input: (N, C, ...)
        running_mean, running_var: (C,) or None; updated with the batch's means, as in `batch_norm`. Without
            `use_input_stats` they are the mean and the variance.
        weight, bias: (C,) or None
        auto, fused: which variant of `group_norm` runs, or of `batch_norm` without `use_input_stats`.

    Raises:
        ValueError: one value per channel; only one running statistic.
        RuntimeError: shapes or dtypes do not match; no running statistics without `use_input_stats`.
    Source: Ulyanov, Vedaldi & Lempitsky, "Instance Normalization", 2016, https://arxiv.org/abs/1607.08022

    >>> F.instance_norm(mytorch.ones(4, 2, 5)).shape
    Size([4, 2, 5])
    """
    choice = {"auto": auto, "fused": fused}
    check_instances("instance_norm", input, running_mean, running_var, weight, bias, use_input_stats)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, **choice)
    update_with_instances(input, running_mean, running_var, momentum)
    return group_norm(input, input.shape[1], weight, bias, eps, **choice)


def check_instances(
    name: str, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, use_input_stats: bool,
) -> None:
    """Raises the errors of a wrong call of `instance_norm`."""
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
    check_channels(name, input, running_mean, running_var, weight, bias)


def update_with_instances(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> None:
    """Updates the running statistics, if any, with the means over the batch of the instances' statistics."""
    if running_mean is not None:
        n, channels, length = (*input.shape[:2], math.prod(input.shape[2:]))
        moments = _moments(input.reshape(1, n * channels, length))
        running = Running(running_mean, running_var, momentum, length if n else 0)
        running.update(*(m.reshape(n, channels).mean(0) for m in moments))


@op(half=True)
def _moments(x):
    """Returns the mean and variance of each channel of (N, C, L), in float32 for half precision."""
    x = upcast(x)
    _, mean, variance = centre(x, x.dtype.type(1 / max(x.size // max(x.shape[1], 1), 1)))
    return (mean[:, 0], variance[:, 0]), None
