"""Piecewise linear activations: relu and its variants, threshold, hardtanh, hardsigmoid, hardswish."""

from __future__ import annotations

import numpy as np

from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor
from ...ops import elementwise, rand_like, reshape, where
from ...ops.inplace import inplace
from ...ops.scalars import as_number
from .composite import composite, floats_only, require_float


@composite
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns max(x, 0); the gradient at 0 is 0.

    Source: Nair & Hinton, "Rectified Linear Units Improve Restricted Boltzmann Machines", 2010,
        https://icml.cc/Conferences/2010/papers/432.pdf

    >>> F.relu(mytorch.tensor([-1.0, 2.0]))
    tensor([0.00000 2.00000])
    """
    return where(input <= 0, 0, input)


@relu.check
def _check_relu(input, inplace):
    _refuse_bool(input, "relu")


@relu.manual
def relu_manual(x, inplace):
    return elementwise.relu.forward(x)


@composite
def squared_relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns max(x, 0)^2; not in PyTorch.

    Source: So et al., "Primer: Searching for Efficient Transformers for Language Modeling", 2021,
        https://arxiv.org/abs/2109.08668

    >>> F.squared_relu(mytorch.tensor([-1.0, 3.0]))
    tensor([0.00000 9.00000])
    """
    return relu(input, auto=True).square()


floats_only(squared_relu)


@squared_relu.manual
def _squared_relu(x, inplace):
    positive = np.maximum(x, 0)
    return positive * positive, lambda g: np.where(positive <= 0, 0, 2 * positive * g)


@composite
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Returns x where x > 0, else negative_slope * x.

    Source: Maas, Hannun & Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013,
        https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf

    >>> F.leaky_relu(mytorch.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.10000  2.00000])
    """
    return where(input > 0, input, negative_slope * input)


floats_only(leaky_relu)


@leaky_relu.manual
def _leaky_relu(x, slope, inplace):
    above = x > 0
    return np.where(above, x, slope * x), lambda g: np.where(above, g, slope * g)


@composite
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Returns x where x > 0, else weight * x: `leaky_relu` with learned slopes.

    Args:
        weight: one slope, () or (1,), or one per channel (dim 1 of the input), (C,).

    Raises:
        RuntimeError: another number of slopes, another dtype, a 0-d input with several.
    Source: He, Zhang, Ren & Sun, "Delving Deep into Rectifiers", 2015, https://arxiv.org/abs/1502.01852

    >>> F.prelu(mytorch.tensor([-1.0, 2.0]), mytorch.tensor([0.25]))
    tensor([-0.25000  2.00000])
    """
    count = weight.numel()
    weight = reshape(weight, () if count == 1 else (count, *(1,) * (input.ndim - 2)))
    below = where(input > 0, 0, input)  # so that dweight is finite where x is inf
    return where(input > 0, input, weight * below)


@prelu.check
def _check_prelu(input, weight):
    require_float(input.dtype, "prelu")
    if weight.dtype != input.dtype:
        raise RuntimeError(f"prelu(): expected one dtype, got input {input.dtype} and weight {weight.dtype}")
    if weight.ndim > 1:
        raise RuntimeError(f"prelu(): expected a weight of 0 or 1 dims, got shape {tuple(weight.shape)}")
    if weight.numel() == 1:
        return
    if input.ndim == 0:
        raise RuntimeError(f"prelu(): a 0-d input takes one weight, got shape {tuple(weight.shape)}")
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.numel() != channels:
        raise RuntimeError(
            f"prelu(): {weight.numel()} weights for {channels} channels of {tuple(input.shape)}"
        )


@composite
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Returns x where x > 0, else a * x with a slope a drawn for each element from U(lower, upper).

    Args:
        training: without it the slope is the mean, (lower + upper) / 2.

    Raises:
        RuntimeError: lower is above upper, or one of them is infinite.
    Source: Xu, Wang, Chen & Li, 2015, https://arxiv.org/abs/1505.00853

    >>> F.rrelu(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.22917  2.00000])
    """
    slope = lower + (upper - lower) * rand_like(input) if training else (lower + upper) / 2
    return where(input > 0, input, slope * input)


@rrelu.check
def _check_rrelu(input, lower, upper, training, inplace):
    require_float(input.dtype, "rrelu")
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise RuntimeError(f"rrelu(): lower and upper must be finite, got {lower} and {upper}")
    if lower > upper:
        raise RuntimeError(f"rrelu(): lower must not be above upper, got {lower} and {upper}")


@composite
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Returns x where x > threshold, else `value`.

    >>> F.threshold(mytorch.tensor([0.0, 1.0]), 0.5, 9.0)
    tensor([9.00000 1.00000])
    """
    return where(input <= threshold, value, input)


@threshold.check
def _check_threshold(input, threshold, value, inplace):
    if input.dtype == bool:
        raise NotImplementedError("threshold(): not implemented for bool tensors")
    return input, *_of_integers("threshold", input, threshold, value), inplace


@composite
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns x clamped to [min_val, max_val]; the gradient at both bounds is 0.

    Raises:
        ValueError: min_val is above max_val.
        RuntimeError: a bool tensor; a negative bound of an unsigned one.

    >>> F.hardtanh(mytorch.tensor([-3.0, 0.5]))
    tensor([-1.00000  0.50000])
    """
    return where(input <= min_val, min_val, where(input >= max_val, max_val, input))


@hardtanh.check
def _check_hardtanh(input, min_val, max_val, inplace):
    _refuse_bool(input, "hardtanh")
    if min_val > max_val:
        raise ValueError(f"hardtanh(): min_val can't be above max_val, got {min_val} and {max_val}")
    if input.dtype.kind == "u" and min_val < 0:
        raise RuntimeError(f"hardtanh(): negative limits for an unsigned dtype, got {min_val}")
    return input, *_of_integers("hardtanh", input, min_val, max_val), inplace


@hardtanh.manual
def _hardtanh(x, low, high, inplace):
    beyond = (x <= low) | (x >= high)
    return np.minimum(np.maximum(x, low), high), lambda g: np.where(beyond, 0, g)


@composite
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns min(max(x, 0), 6).

    Source: Howard et al., "MobileNets", 2017, https://arxiv.org/abs/1704.04861

    >>> F.relu6(mytorch.tensor([-1.0, 9.0]))
    tensor([0.00000 6.00000])
    """
    return hardtanh(input, 0, 6)


@composite
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x / 6 + 1/2 clamped to [0, 1]: a piecewise linear `sigmoid`.

    >>> F.hardsigmoid(mytorch.tensor([-3.0, 0.0]))
    tensor([0.00000 0.50000])
    """
    inside = (input > -3) & (input < 3)
    return where(inside, input, input.detach().clamp(-3, 3)) / 6 + 0.5  # NaN, too, has no gradient


floats_only(hardsigmoid)


@composite
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x hardsigmoid(x): a piecewise quadratic `silu`.

    Source: Howard et al., "Searching for MobileNetV3", 2019, https://arxiv.org/abs/1905.02244

    >>> F.hardswish(mytorch.tensor([-3.0, 3.0]))
    tensor([-0.00000  3.00000])
    """
    return input * (hardtanh(input, -3, 3) / 6 + 0.5)


floats_only(hardswish)


def _of_integers(name: str, x: Tensor, *values: float) -> tuple:
    """Returns the values as integers if x is integer, so that the result has its dtype."""
    return values if is_floating_point(x.dtype) else tuple([as_number(v, x.dtype, name) for v in values])


def _refuse_bool(x: Tensor, name: str) -> None:
    if x.dtype == bool:
        raise RuntimeError(f"{name}(): not defined for bool tensors")


relu_, leaky_relu_, rrelu_ = inplace(relu), inplace(leaky_relu), inplace(rrelu)
threshold_, hardtanh_ = inplace(threshold), inplace(hardtanh)
