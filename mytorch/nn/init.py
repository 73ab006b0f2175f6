"""Initial values of parameters: each function fills a tensor in place, outside the graph, and returns it.

`fan_in` is how many inputs an output sums up, `fan_out` how many outputs an input feeds: the sizes of dims 1
and 0, times those of all further dims (the kernel of a convolution).
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import no_grad
from ..backends.device import RawArray, on
from ..core.tensor import Tensor, from_raw, raw_of
from ..ops import erfinv, randn
from ..ops.arrays import as_tensors
from ..ops.inplace import write
from ..ops.random import fill
from ..random import Generator

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3,
    "relu": math.sqrt(2), "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor of the weights' std that preserves the variance through a nonlinearity.

    Args:
        nonlinearity: the name of a function of `nn.functional`.
        param: for "leaky_relu", its negative slope (0.01).

    Raises:
        ValueError: an unknown name, or a slope that is not a number.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {slope!r} not a valid number")
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(
            f"Unsupported nonlinearity {nonlinearity!r}; supported are leaky_relu, {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


_skip = threading.local()


@contextmanager
def skipped() -> Iterator[None]:
    """In this block the functions of this module leave tensors as they are: for models that are loaded.

    >>> with nn.init.skipped():
    ...     model = nn.Linear(1000, 1000)  # its parameters have any values
    """
    before = getattr(_skip, "on", False)
    _skip.on = True
    try:
        yield
    finally:
        _skip.on = before


def _outside_graph(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(tensor: Tensor, *args, **kwargs) -> Tensor:
        if not getattr(_skip, "on", False):
            with no_grad(), on(tensor.device):
                function(as_tensors(tensor), *args, **kwargs)
        return tensor

    return call


@_outside_graph
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with uniform random values in [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@_outside_graph
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fills with normal random values."""
    return tensor.normal_(mean, std, generator=generator)


@_outside_graph
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fills with normal random values in [a, b]: the inverse of P at uniform ones in [P(a), P(b)]."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_(): mean {mean} is more than 2 std from [{a}, {b}], where few digits are left",
            stacklevel=3,
        )
    low, high = (math.erf((x - mean) / std / math.sqrt(2)) for x in (a, b))

    def draw(shape: tuple, dtype: np.dtype, rng: Any) -> RawArray:
        chance = from_raw(rng.random(shape, dtype=np.float64))
        return raw_of((erfinv(chance * (high - low) + low) * (std * math.sqrt(2)) + mean).clamp(a, b))

    return fill(tensor, "trunc_normal_", generator, draw)


@_outside_graph
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills with a constant."""
    return write(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Fills with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills with zeros."""
    return constant_(tensor, 0.0)


@_outside_graph
def eye_(tensor: Tensor) -> Tensor:
    """Fills with the identity matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got {tensor.ndim}")
    rows = np.arange(min(tensor.shape), like=raw_of(tensor))
    return write(zeros_(tensor), 1, (rows, rows))


def fans(tensor: Tensor) -> tuple[int, int]:
    """Returns (fan_in, fan_out).

    Raises:
        ValueError: fewer than 2 dims.
    """
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with uniform random values between ± gain sqrt(6 / (fan_in + fan_out)).

    Source: Glorot & Bengio, "Understanding the difficulty of training deep feedforward networks", 2010,
        https://proceedings.mlr.press/v9/glorot10a.html
    """
    bound = math.sqrt(3) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with normal random values of std gain sqrt(2 / (fan_in + fan_out)); source: as
    `xavier_uniform_`."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _xavier_std(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2 / sum(fans(tensor)))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills with uniform random values between ± gain sqrt(3 / fan).

    Args:
        a: the negative slope, for nonlinearity "leaky_relu".
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass.
        nonlinearity: the following one, for the gain (see `calculate_gain`).

    Raises:
        ValueError: an unknown mode or nonlinearity, or fewer than 2 dims.
    Source: He et al., "Delving Deep into Rectifiers", 2015, https://arxiv.org/abs/1502.01852
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills with normal random values of std gain / sqrt(fan); arguments and source: as
    `kaiming_uniform_`."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    modes = ("fan_in", "fan_out")
    if mode not in modes:
        raise ValueError(f"Mode {mode!r} not supported, please use one of {modes}")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[modes.index(mode)])


@_outside_graph
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fills with orthonormal rows or columns (the fewer), times `gain`; further dims are columns.

    Q of the QR decomposition of a normal matrix, with the signs that make it uniformly distributed.

    Raises:
        ValueError: fewer than 2 dims.
    Source: Saxe, McClelland & Ganguli, 2013, https://arxiv.org/abs/1312.6120; for the signs Mezzadri, 2006,
    https://arxiv.org/abs/math-ph/0609050
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    if not rows * columns:
        return tensor
    shape = (max(rows, columns), min(rows, columns))
    noise = randn(
        shape,
        dtype=np.float32 if tensor.itemsize < 4 else tensor.dtype,
        device=tensor.device,
        generator=generator,
    )
    q, r = np.linalg.qr(raw_of(noise))
    q = q * np.sign(np.diagonal(r))
    q = q.T if rows < columns else q
    return write(tensor, q.reshape(tensor.shape) * gain)
