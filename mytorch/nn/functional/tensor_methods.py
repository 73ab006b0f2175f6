"""Functions that are also in `mytorch`, as `mytorch.selu(x)`, and methods of Tensor, as `x.softmax(0)`."""

from __future__ import annotations

from ... import methods
from ...core.tensor import Tensor
from ...ops.dims import numpy_names
from . import shrink
from .elu import celu, celu_, selu, selu_
from .rectifiers import prelu as _prelu
from .rectifiers import relu_, rrelu, rrelu_, threshold, threshold_
from .softmax import log_softmax as _log_softmax
from .softmax import softmax as _softmax
from .types import DTypeLike

__all__ = [
    "celu", "celu_", "hardshrink", "log_softmax", "prelu", "relu_", "rrelu", "rrelu_", "selu", "selu_",
    "softmax", "threshold", "threshold_",
]


@numpy_names
def softmax(input: Tensor, dim: int, dtype: DTypeLike = None) -> Tensor:
    """Returns exp(x_i) / sum_j exp(x_j) along a dim: see `nn.functional.softmax`.

    >>> mytorch.tensor([1.0, 1.0, 2.0]).softmax(0)
    tensor([0.21194 0.21194 0.57612])
    """
    return _softmax(input, dim, 3, dtype)


@numpy_names
def log_softmax(input: Tensor, dim: int, dtype: DTypeLike = None) -> Tensor:
    """Returns log(softmax(x)) along a dim: see `nn.functional.log_softmax`.

    >>> mytorch.tensor([1.0, 1.0]).log_softmax(0)
    tensor([-0.69315 -0.69315])
    """
    return _log_softmax(input, dim, 3, dtype)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Returns x where x > 0, else weight * x: see `nn.functional.prelu`.

    >>> mytorch.tensor([-1.0, 2.0]).prelu(mytorch.tensor([0.25]))
    tensor([-0.25000  2.00000])
    """
    return _prelu(input, weight)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Returns x where |x| > lambd, else 0: see `nn.functional.hardshrink`.

    >>> mytorch.tensor([-1.0, 0.2]).hardshrink()
    tensor([-1.00000  0.00000])
    """
    return shrink.hardshrink(input, lambd)


for _function in (softmax, log_softmax, prelu, hardshrink):
    methods.attach(_function.__name__, _function)
