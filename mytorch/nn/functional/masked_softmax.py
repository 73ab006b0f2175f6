"""Softmax and its logarithm over the elements that count: attention's weights, as functions of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...ops import ones, where
from .activations import require_float
from .composite import composite
from .softmax import log_softmax, shifted, softmax, total


@composite
def masked_softmax(input: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Softmax over those elements of the last dim that count; the others get 0.

    It is softmax(input.masked_fill(~mask, -inf), -1): a row without any element that counts gives NaN.

    Args:
        input: (..., S), or (..., L, S) if it is causal.
        mask: bool, True where an element counts; broadcasts to the input.
        is_causal: element (i, j) counts if j <= i, and the mask, if there is one, agrees.

    Raises:
        NotImplementedError: the input is not floating-point.
        RuntimeError: the mask is not bool or doesn't broadcast to the input; a causal input has one dim.
    """
    return softmax(_filled(input, mask, is_causal), -1, auto=True)


@composite
def masked_log_softmax(input: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """log(masked_softmax(input, mask, is_causal)), without losing small probabilities: -inf where masked.

    Args:
        input, mask, is_causal: as for `masked_softmax`.

    Raises:
        NotImplementedError, RuntimeError: as for `masked_softmax`.
    """
    return log_softmax(_filled(input, mask, is_causal), -1, auto=True)


def _filled(input, mask, is_causal):
    if is_causal:
        causal = ones(input.shape[-2:], dtype=bool, device=input.device).tril()
        mask = causal if mask is None else mask & causal
    return input if mask is None else where(mask, input, -math.inf)


def _checker(name):
    def check(input, mask, is_causal):
        require_float(input, name)
        shape = input.data.shape
        if is_causal and len(shape) < 2:
            raise RuntimeError(f"{name}(): a causal input needs 2 or more dims, got shape {shape}")
        if mask is None:
            return
        if mask.dtype != bool:
            raise RuntimeError(f"{name}(): expected a mask of dtype bool, got {mask.dtype}")
        given = mask.data.shape
        if len(given) > len(shape) or any(
            m not in (1, n) for m, n in zip(given[::-1], shape[::-1], strict=False)
        ):
            raise RuntimeError(
                f"{name}(): a mask of shape {given} can't be broadcast to the input's shape {shape}"
            )

    return check


masked_softmax.check(_checker("masked_softmax"))
masked_log_softmax.check(_checker("masked_log_softmax"))


@masked_softmax.manual
def _masked_softmax(x, mask, is_causal):
    counts, dim = _counting(x, mask, is_causal), max(x.ndim - 1, 0)
    y = shifted(_replaced(x, counts, -math.inf), dim)
    np.exp(y, out=y)
    y /= total(y, dim)

    def grad(g):
        d = g * y
        d -= y * total(d, dim)
        return _replaced(d, counts, 0)

    return y, grad


@masked_log_softmax.manual
def _masked_log_softmax(x, mask, is_causal):
    counts, dim = _counting(x, mask, is_causal), max(x.ndim - 1, 0)
    y = shifted(_replaced(x, counts, -math.inf), dim)
    y -= np.log(total(np.exp(y), dim))
    return y, lambda g: _replaced(g - np.exp(y) * total(g, dim), counts, 0)


def _counting(x: Any, mask: Any, is_causal: bool) -> Any:
    """Which elements count, in a shape that broadcasts to x's; None for all."""
    if not is_causal:
        return mask
    rows, columns = x.shape[-2:]
    causal = np.arange(columns, like=x) <= np.arange(rows, like=x)[:, None]
    return causal if mask is None else mask & causal


def _replaced(x: Any, counts: Any, value: float) -> Any:
    """x, with a value in the place of what doesn't count."""
    return x if counts is None else np.where(counts, x, value)


def mask_rows(mask: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A mask for rows of x: its own distinct rows, (M, S), and for each row of x which of them it has.

    A mask that is broadcast isn't copied for each row, so kernels read little more than x.
    """
    shape = shape or (1,)
    mask = np.reshape(mask, (1,) * (len(shape) - mask.ndim) + mask.shape)
    leading, width = mask.shape[:-1], shape[-1]
    if mask.shape[-1] != width:
        mask = np.broadcast_to(mask, (*leading, width))
    which = np.reshape(np.arange(math.prod(leading), like=mask), leading)
    which = np.reshape(np.broadcast_to(which, shape[:-1]), -1)
    mask = np.reshape(mask, (math.prod(leading), width))
    return np.ascontiguousarray(mask, like=mask), np.ascontiguousarray(which, like=which)
