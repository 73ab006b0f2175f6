"""Smooth activations: sigmoid, tanh, soft_cap, silu, softplus, logsigmoid, mish, softsign."""

from __future__ import annotations

import numpy as np

from ...backends.device import RawArray
from ...backends.dtypes import get_default_dtype
from ...core.tensor import Tensor
from ...ops import where
from .composite import composite, floats_only, require_float


@composite
def sigmoid(input: Tensor) -> Tensor:
    """Returns 1 / (1 + exp(-x)); floats for integers.

    >>> F.sigmoid(mytorch.tensor([0.0, 2.0]))
    tensor([0.50000 0.88080])
    """
    return input.sigmoid()  # (1 + tanh(x / 2)) / 2 would lose the digits of small results


@sigmoid.check
def _check_sigmoid(input):
    return (input.to(get_default_dtype()) if input.dtype.kind in "biu" else input,)


@sigmoid.manual
def _sigmoid(x):
    y = raw_sigmoid(x)
    return y, lambda g: g * (y * (1 - y))


def raw_sigmoid(x: RawArray) -> RawArray:
    return 1 / (1 + np.exp(-x))  # exp may be infinite: then this is 0


@composite
def tanh(input: Tensor) -> Tensor:
    """Returns (exp(x) - exp(-x)) / (exp(x) + exp(-x)).

    >>> F.tanh(mytorch.tensor([0.0, 1.0]))
    tensor([0.00000 0.76159])
    """
    return input.tanh()


@composite
def soft_cap(input: Tensor, cap: float) -> Tensor:
    """Returns cap tanh(x / cap): nearly x for small x, and always between -cap and cap; not in PyTorch.

    Raises:
        ValueError: the cap isn't positive.
    Source: Gemma Team, "Gemma 2", 2024, https://arxiv.org/abs/2408.00118, section 2, "Logit soft-capping".

    >>> F.soft_cap(mytorch.tensor([1.0, 100.0]), 30.0)
    tensor([ 0.99963 29.92374])
    """
    return cap * (input / cap).tanh()


@soft_cap.check
def _check_soft_cap(input, cap):
    require_float(input.dtype, "soft_cap")
    if not cap > 0:
        raise ValueError(f"soft_cap(): cap must be positive, got {cap}")


@soft_cap.manual
def _soft_cap(x, cap):
    t = np.tanh(x / cap)
    return cap * t, lambda g: g * (1 - t * t)


@composite
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x sigmoid(x), also called swish.

    Source: Elfwing, Uchibe & Doya, 2017, https://arxiv.org/abs/1702.03118

    >>> F.silu(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.26894  1.76159])
    """
    return input * sigmoid(input, auto=True)


floats_only(silu)


@silu.manual
def silu_manual(x, inplace):
    s = raw_sigmoid(x)
    y = x * s
    return y, lambda g: g * (s + y * (1 - s))


@composite
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Returns log(1 + exp(beta x)) / beta, a smooth approximation of `relu`.

    Args:
        threshold: where beta x exceeds it the result is x.

    >>> F.softplus(mytorch.tensor([0.0, 2.0]))
    tensor([0.69315 2.12693])
    """
    scaled = beta * input
    return where(scaled > threshold, input, log1p_exp(scaled) / beta)


floats_only(softplus)


@softplus.manual
def _softplus(x, beta, threshold):
    scaled = beta * x
    linear, power = scaled > threshold, np.exp(-np.abs(scaled))
    y = np.where(linear, x, (np.maximum(scaled, 0) + np.log1p(power)) / beta)
    return y, lambda g: np.where(linear, g, g * raw_sigmoid(scaled))


@composite
def logsigmoid(input: Tensor) -> Tensor:
    """Returns log(sigmoid(x)) = -log(1 + exp(-x)), finite where sigmoid(x) underflows.

    >>> F.logsigmoid(mytorch.tensor([0.0, 2.0]))
    tensor([-0.69315 -0.12693])
    """
    return -log1p_exp(-input)


floats_only(logsigmoid)


@logsigmoid.manual
def _logsigmoid(x):
    y = np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))
    return y, lambda g: g * raw_sigmoid(-x)


def log1p_exp(x: Tensor) -> Tensor:
    """Returns log(1 + exp(x)), for x > 0 as x + log(1 + exp(-x)), which cannot overflow."""
    low, high = where(x <= 0, x, 0), where(x <= 0, 0, x)
    return high + (low - high).exp().log1p()


@composite
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x tanh(log(1 + exp(x))).

    Source: Misra, 2019, https://arxiv.org/abs/1908.08681

    >>> F.mish(mytorch.tensor([-1.0, 2.0]))
    tensor([-0.30340  1.94396])
    """
    return input * log1p_exp(input).tanh()


floats_only(mish)


@mish.manual
def _mish(x, inplace):
    """Uses tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), which is 1 in float64 from x = 20 on."""
    e = np.exp(np.minimum(x, 20))
    n = e * (e + 2)
    t = n / (n + 2)
    return x * t, lambda g: g * (t + x * (1 - t * t) * (e / (1 + e)))


@composite
def softsign(input: Tensor) -> Tensor:
    """Returns x / (1 + |x|), floating-point for integers.

    >>> F.softsign(mytorch.tensor([-1.0, 3.0]))
    tensor([-0.50000  0.75000])
    """
    return input / (1 + input.abs())


@softsign.check
def _check_softsign(input):
    if input.dtype == bool:
        raise NotImplementedError("softsign(): not implemented for bool tensors")
