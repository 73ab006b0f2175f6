"""Dropout, of elements and of whole channels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from ...backends.device import RawArray, device, device_of, on, thread
from ...backends.door import in_force
from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor, from_raw, raw_of
from ...ops.inplace import inplace as in_place
from ...random import generator_on
from . import philox
from .composite import Unsupported, composite

ALPHA = 1.7580993408473766  # minus the limit of SELU as x -> -inf


@composite
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes each element with probability p and scales the others by 1 / (1 - p), which preserves the mean.

    The default generator of the input's device supplies a seed, or the random values: after the same
    `manual_seed`, the same variant drops the same elements. Without `training` it returns the input.

    Raises:
        RuntimeError: the input is not floating-point.
        ValueError: p is not in [0, 1].
    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014,
        https://jmlr.org/papers/v15/srivastava14a.html

    >>> F.dropout(mytorch.ones(2), training=False)
    tensor([1.00000 1.00000])
    >>> F.dropout(mytorch.ones(2), 1.0)
    tensor([0.00000 0.00000])
    """
    draw = training  # the checker replaces it by a `Draw`
    return input * (from_raw(draw.kept(raw_of(input), p)).to(input.dtype) * scale_of_kept(p))


@dropout.check
def _check(input, p, training, inplace):
    return (input, p, Draw(input.device), inplace) if _drops("dropout", input, p, training) else input


@dropout.manual
def _dropout(x, p, draw, inplace):
    kept, scale = draw.mask(x, p), x.dtype.type(scale_of_kept(p))
    return x * kept * scale, lambda g: g * kept * scale


class Draw:
    """The elements that one call keeps; fixed, as a second derivative runs the call again.

    Kernels and the reference compute them from the seed and an element's index and store nothing. In NumPy
    that takes ten times as long as drawing from the generator: the manual variant draws a mask, which is
    stored here.
    """

    def __init__(self, target: device):
        self._mask = None
        if not in_force().draws:
            self.generator = generator_on(target, None)
            self._seed = self.generator.next_seed()

    @property
    def seed(self) -> int:
        """The seed for kernels; not for captured graphs, whose replays would all use it."""
        if thread.is_capturing:
            raise Unsupported("dropout by seed would be constant in a captured graph")
        return self._seed

    def kept(self, x: RawArray, p: float) -> RawArray:
        """Returns a bool array in the shape of `x`: the mask, if one was drawn, else from the seed."""
        if self._mask is not None or in_force().draws:
            return self.mask(x, p)
        with on(device_of(x)):
            return (philox.uniform(self.seed, x.size, device_of(x)) > p).reshape(x.shape)

    def mask(self, x: RawArray, p: float) -> RawArray:
        """Returns the mask, drawn from the generator at the first call."""
        if (kept := in_force().kept(self, x, p)) is not None:
            return kept
        if self._mask is None:
            dtype = np.float64 if x.dtype == np.float64 else np.float32
            self._mask = self.generator.rng.random(x.shape, dtype=dtype) >= p
        return self._mask


def scale_of_kept(p: float) -> float:
    """Returns 1 / (1 - p), by which dropout scales the elements that it keeps; 0 for p = 1."""
    return 1 / (1 - p) if p < 1 else 0.0


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability p: see `dropout` and `dropout2d`.

    Raises:
        RuntimeError: the input has not 2 or 3 dims.

    >>> F.dropout1d(mytorch.ones(2, 3, 4), training=False).shape
    Size([2, 3, 4])
    """
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d(): expected a 2D or 3D input, got shape {tuple(input.shape)}")
    return _channel_dropout("dropout1d", input, p, training, inplace, input.ndim - 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, H, W) with probability p and scales the others by 1 / (1 - p).

    An input of 3 dims is (N, C, L), as in PyTorch.

    Raises:
        RuntimeError: the input has fewer than 2 dims, or is not floating-point.
        ValueError: p is not in [0, 1].
    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015,
        https://arxiv.org/abs/1411.4280

    >>> F.dropout2d(mytorch.ones(2, 3, 4, 4), training=False).shape
    Size([2, 3, 4, 4])
    """
    if input.ndim != 4:
        warnings.warn(f"dropout2d(): expected a 4D input (N, C, H, W), got {input.ndim}D", stacklevel=3)
    return _channel_dropout("dropout2d", input, p, training, inplace, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability p: see `dropout2d`.

    >>> F.dropout3d(mytorch.ones(2, 3, 4, 4, 4), training=False).shape
    Size([2, 3, 4, 4, 4])
    """
    if input.ndim not in (4, 5):
        warnings.warn(f"dropout3d(): expected a 4D or 5D input, got {input.ndim}D", stacklevel=3)
    return _channel_dropout("dropout3d", input, p, training, inplace, 2 if input.ndim == 5 else 1)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Sets each element with probability p to the limit of SELU, -α, and scales and shifts all elements,
    which preserves mean 0 and variance 1.

        a (x or -α) + a α p,   a = ((1 - p) (1 + p α²))^(-1/2)

    Raises:
        RuntimeError: the input is not floating-point.
        ValueError: p is not in [0, 1].
    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017, https://arxiv.org/abs/1706.02515

    >>> F.alpha_dropout(mytorch.ones(2), training=False)
    tensor([1.00000 1.00000])
    """
    return _alpha_dropout("alpha_dropout", input, p, training, inplace, input.shape)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels, (N, C, …).

    Raises:
        RuntimeError: the input has fewer than 2 dims, or is not floating-point.
        ValueError: p is not in [0, 1].

    >>> F.feature_alpha_dropout(mytorch.ones(1, 2), training=False)
    tensor([[1.00000 1.00000]])
    """
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha_dropout("feature_alpha_dropout", input, p, training, inplace, shape)


def check_probability(p: float) -> None:
    """Raises ValueError unless p is in [0, 1]."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout_mask(like: Tensor, shape: Sequence[int], p: float) -> Tensor:
    """Returns 0 with probability p, else 1 / (1 - p), in the dtype and on the device of a tensor."""
    return _keep(like, shape, p) * scale_of_kept(p)


def _keep(like, shape, p):
    """Returns 0 with probability p, else 1."""
    rng = generator_on(like.device, None).rng
    with on(like.device):
        drawn = rng.random(tuple(shape), dtype=np.float64 if like.dtype == np.float64 else np.float32)
        return from_raw((drawn >= p).astype(like.dtype))


def _drops(name, input, p, training):
    """Returns whether elements are dropped; raises the errors of a wrong call."""
    check_probability(p)
    if not training or p == 0:
        return False
    if not is_floating_point(input.dtype):
        raise RuntimeError(
            f"{name}(): a result of type float can't be cast to the input's type {input.dtype}"
        )
    return True


def _channel_dropout(name, input, p, training, inplace, lead):
    if not _drops(name, input, p, training):
        return input
    if input.ndim < lead:
        shape = tuple(input.shape)
        raise RuntimeError(f"{name}(): at least {lead} dimensions are required, got shape {shape}")
    mask = dropout_mask(input, (*input.shape[:lead], *[1] * (input.ndim - lead)), p)
    return input.mul_(mask) if inplace else input * mask


def _alpha_dropout(name, input, p, training, inplace, shape):
    if not _drops(name, input, p, training):
        return input
    if name.startswith("feature") and input.ndim < 2:
        raise RuntimeError(f"{name}(): at least 2 dimensions are required, got shape {tuple(input.shape)}")
    a = 1 / math.sqrt((1 - p) * (1 + p * ALPHA**2)) if p < 1 else 0
    keep = _keep(input, shape, p)
    shift = (keep - 1) * (a * ALPHA) + a * ALPHA * p

    def function(x):
        return x * (keep * a) + shift

    return in_place(function, f"{name}_")(input) if inplace else function(input)
