"""Exponential linear units (elu, selu, celu): linear above 0, exponential below."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends.device import RawArray
from ...core.tensor import Tensor
from ...ops import where
from ...ops.inplace import inplace
from .composite import composite, floats_only, require_float

# With these constants mean 0 and variance 1 are a fixed point of selu.
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


@composite
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns x where x > 0, else alpha (exp(x) - 1).

    Source: Clevert, Unterthiner & Hochreiter, 2015, https://arxiv.org/abs/1511.07289

    >>> F.elu(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.63212  2.00000])
    """
    return _unit(input, alpha)


@elu.manual
def _elu(x, alpha, inplace):
    return _unit_manual(x, alpha)


@composite
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns scale * elu(x, alpha) with constants that keep the mean and variance of the activations.

    Source: Klambauer, Unterthiner, Mayr & Hochreiter, 2017, https://arxiv.org/abs/1706.02515

    >>> F.selu(mytorch.tensor([-1.0, 2.0]))
    tensor([-1.11133  2.10140])
    """
    return SELU_SCALE * _unit(input, SELU_ALPHA)


@selu.manual
def _selu(x, inplace):
    return _unit_manual(x, SELU_ALPHA, scale=SELU_SCALE)


@composite
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns x where x > 0, else alpha (exp(x / alpha) - 1): `elu` with a continuous slope for every alpha.

    Raises:
        RuntimeError: alpha is 0.
    Source: Barron, 2017, https://arxiv.org/abs/1704.07483

    >>> F.celu(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.63212  2.00000])
    """
    return _unit(input, alpha, 1 / alpha)


@celu.manual
def _celu(x, alpha, inplace):
    return _unit_manual(x, alpha, 1 / alpha)


floats_only(elu)
floats_only(selu)


@celu.check
def _check_celu(input, alpha, inplace):
    require_float(input.dtype, "celu")
    if alpha == 0:
        raise RuntimeError("celu(): ZeroDivisionError: alpha cannot be 0")


def _unit(x: Tensor, alpha: float, inner: float = 1) -> Tensor:
    """Returns max(x, 0) + alpha (exp(inner * min(x, 0)) - 1)"""
    return where(x <= 0, 0, x) + alpha * (inner * where(x <= 0, x, 0)).expm1()


def _unit_manual(x: RawArray, alpha: float, inner: float = 1, scale: float = 1) -> tuple[RawArray, Callable]:
    below = x <= 0
    power = inner * np.minimum(x, 0)
    y = np.where(below, scale * alpha * np.expm1(power), scale * x)
    return y, lambda g: np.where(below, g * (scale * alpha * inner) * np.exp(power), scale * g)


elu_, selu_, celu_ = inplace(elu), inplace(selu), inplace(celu)
