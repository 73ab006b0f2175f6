"""Functions that are also methods of Tensor, `x.softmax(0)`, and of the package, `mytorch.softmax(x, 0)`."""

from __future__ import annotations

from typing import Any

from ... import methods
from ...ops.dims import numpy_names
from ...tensor import Tensor
from .softmax import log_softmax as _log_softmax
from .softmax import softmax as _softmax


@numpy_names
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along a dim: see `nn.functional.softmax`."""
    return _softmax(input, dim, 3, dtype)


@numpy_names
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along a dim: see `nn.functional.log_softmax`."""
    return _log_softmax(input, dim, 3, dtype)


methods.attach("softmax", softmax)
methods.attach("log_softmax", log_softmax)
