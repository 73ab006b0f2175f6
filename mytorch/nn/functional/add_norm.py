"""
Normalization of a sum, which is a result, too. A block of a pre-norm transformer adds what the one before it
computed to the residual stream, and goes on with both the stream and its norm:

    y, stream = add_layer_norm(attention(…), stream, (width,), weight, bias)

A kernel reads both summands once and writes both results. All the rest is that of the norm without a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from .batch_norm import batch_norm, check_instances, group_norm, update_with_instances
from .composite import Composite, composite
from .normalization import layer_norm, rms_norm


@composite(outputs=True)
def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Add two tensors and normalize the last dims of the sum: see `layer_norm`.

        sum = input + residual
        y = (sum - E[sum]) / sqrt(Var[sum] + eps) * weight + bias

    Args:
        input, residual: (..., *normalized_shape), of one shape and dtype.
        weight, bias: (*normalized_shape) or None
        eps: added to the variance.

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        RuntimeError: shapes or dtypes don't fit.
    Source: Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, figure 1 (b),
        https://arxiv.org/abs/2002.04745
    """
    total = input + residual
    return layer_norm.reference(total, normalized_shape, weight, bias, eps), total


@composite(outputs=True)
def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Add two tensors and divide the last dims of the sum by the root of their mean square: see `rms_norm`.

        sum = input + residual
        y = sum / sqrt(E[sum^2] + eps) * weight

    Args:
        input, residual: (..., *normalized_shape), of one shape and dtype.
        weight: (*normalized_shape) or None; used in the dtype of the input.
        eps: by default the distance from 1 to the next number of the dtype, for float16 that of float32.

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        RuntimeError: shapes don't fit; integers; input and residual differ in dtype.
    """
    total = input + residual
    return rms_norm.reference(total, normalized_shape, weight, eps), total


@composite(outputs=True)
def add_group_norm(
    input: Tensor,
    residual: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Add two tensors and normalize groups of channels of the sum: see `group_norm`.

    Args:
        input, residual: (N, C, ...), of one shape and dtype.
        weight, bias: (C,) or None

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        ValueError: one value a group.
        RuntimeError: num_groups doesn't divide C; shapes or dtypes don't fit.
    """
    total = input + residual
    return group_norm.reference(total, num_groups, weight, bias, eps), total


@composite(outputs=True)
def add_batch_norm(
    input: Tensor,
    residual: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Add two tensors and normalize each channel of the sum over the batch: see `batch_norm`.

    Args:
        input, residual: (N, C, ...), of one shape and dtype.
        running_mean, running_var: (C,); see `batch_norm`.
        weight, bias: (C,) or None

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        ValueError: one value a channel in training; eps is not positive; one of the two running ones.
        RuntimeError: shapes or dtypes don't fit; no running statistics without training.
        IndexError: fewer than 2 dims.
    """
    total = input + residual
    arguments = (running_mean, running_var, weight, bias, training, momentum, eps)
    return batch_norm.reference(total, *arguments), total


def add_instance_norm(
    input: Tensor,
    residual: Tensor,
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
) -> tuple[Tensor, Tensor]:
    """Add two tensors and normalize each channel of each sample of the sum: see `instance_norm`.

    Args:
        input, residual: (N, C, ...), of one shape and dtype.
        running_mean, running_var: (C,) or None; see `instance_norm`.
        weight, bias: (C,) or None
        auto, fused: which variant of `add_group_norm` runs, or of `add_batch_norm` without `use_input_stats`.

    Returns:
        (y, sum), both in the shape and dtype of the input.

    Raises:
        ValueError: one value a channel; one of the two running ones.
        RuntimeError: shapes or dtypes don't fit; no running statistics without `use_input_stats`.
    """
    choice: Any = {"auto": auto, "fused": fused}
    check_instances("add_instance_norm", input, running_mean, running_var, weight, bias, use_input_stats)
    if not use_input_stats:
        arguments = (running_mean, running_var, weight, bias, False, momentum, eps)
        return add_batch_norm(input, residual, *arguments, **choice)
    y, total = add_group_norm(input, residual, input.shape[1], weight, bias, eps, **choice)
    update_with_instances(total.detach(), running_mean, running_var, momentum)
    return y, total


def _complete(composite: Composite, norm: Composite) -> None:
    """Give `norm` after an addition a check and a hand-derived variant, made of those of `norm`."""
    name = composite.__name__

    @composite.check
    def check(input, residual, *rest):
        same = residual.data.shape == input.data.shape and residual.dtype == input.dtype
        if not same:
            raise RuntimeError(
                f"{name}(): input and residual must be of one shape and dtype, got {input.data.shape} of "
                f"{input.dtype} and {residual.data.shape} of {residual.dtype}"
            )
        answer = norm.checker(input, *rest)
        if isinstance(answer, Tensor):  # batch_norm's for a vector without elements
            raise IndexError(f"{name}(): expected an input with a dim of channels, got {input.data.shape}")
        return None if answer is None else (input, residual, *answer[1:])

    @composite.manual
    def manual(x, residual, *rest):
        total = x + residual
        y, backward = norm.manual_variant.forward(total, *rest)
        return (y, total), of_sum(functools.partial(_all, *backward))


def _all(*functions_and_g):
    *functions, g = functions_and_g
    return tuple([f and f(g) for f in functions])


def of_sum(backward: Callable[[Any], tuple]) -> Callable[[Sequence[Any]], tuple]:
    """The vjp of a norm of input + residual, with results (y, sum), from that of the norm."""

    def vjp(gradients):
        of_y, of_total = gradients
        if of_y is None:
            return of_total, of_total
        through, *others = backward(of_y)
        through = through if of_total is None else through + of_total
        return through, through, *others

    return vjp


_complete(add_layer_norm, layer_norm)
_complete(add_rms_norm, rms_norm)
_complete(add_group_norm, group_norm)
_complete(add_batch_norm, batch_norm)
