"""Elements chosen or replaced where a mask of bools says so."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import is_raw
from ..tensor import Tensor
from .index import mask_at
from .op import NUMBERS, op, promoted, require_tensor
from .shape import expand, reshape

__all__ = ["where", "masked_fill", "masked_select", "nonzero", "argwhere"]


def where(condition: Tensor, x: Any = None, y: Any = None) -> Any:
    """x where the condition is True, else y, broadcast and promoted; alone, as `nonzero(as_tuple=True)`.

    Raises:
        RuntimeError: the condition is not bool, or the shapes can't be broadcast.
        TypeError: one of x and y is missing.
    """
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise TypeError("where(): expects either condition alone or both x and y")
    return _where(x, y, condition)


@op
def _where(x, y, condition):
    _check_mask("where", condition)
    x, y = promoted([x, y])
    chosen = _chosen("where", condition, x, y)
    return chosen, (lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g))


@op
def masked_fill(x, mask, value):
    """`value`, a number or a 0-d tensor, where the mask is True, else x; mask and x are broadcast together.

    Raises:
        RuntimeError: the mask is not bool; the shapes can't be broadcast; the value doesn't fit x's dtype.
    """
    require_tensor(x, "masked_fill")
    _check_mask("masked_fill", mask)
    if not is_raw(value):
        value = as_number(value, x.dtype, "masked_fill")
    elif value.ndim:
        raise RuntimeError(f"masked_fill(): value must be a number or a 0-d tensor, got shape {value.shape}")
    filled = _chosen("masked_fill", mask, value.astype(x.dtype), x)
    return filled, (lambda g: np.where(mask, 0, g), None, lambda g: np.where(mask, g, 0))


def _chosen(name, condition, x, y):
    try:
        return np.where(condition, x, y)
    except ValueError as error:
        raise RuntimeError(f"{name}(): {error}") from None


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is True, in order, with one dim; mask and x are broadcast together.

    Raises:
        RuntimeError: the mask is not bool, or the shapes can't be broadcast.
    """
    require_tensor(x, "masked_select")
    _check_mask("masked_select", mask)
    try:
        shape = np.broadcast_shapes(x.shape, mask.shape)
    except ValueError:
        shapes = f"{list(x.shape)} and {list(mask.shape)}"
        raise RuntimeError(f"masked_select(): can't broadcast {shapes}") from None
    return mask_at(expand(x, shape), expand(mask, shape), 0)


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Where `x` is not zero (or not False): an int64 tensor with a row of indices for each such element.

    Args:
        as_tuple: give a tensor for each dim instead, for use as an index; a 0-d tensor counts as 1-d.
    """
    if as_tuple:
        return _nonzero_each_dim(reshape(x, 1) if x.ndim == 0 else x)
    return _nonzero(x)


argwhere = nonzero


@op
def _nonzero(x):
    if x.ndim == 0:
        return np.zeros((int(x != 0), 0), np.int64, like=x), None
    return np.stack(np.nonzero(x), axis=1), None


@op
def _nonzero_each_dim(x):
    return tuple(np.nonzero(x)), None


def as_number(value: Any, dtype: np.dtype, name: str) -> np.generic:
    """The number as a scalar of `dtype`.

    Raises:
        RuntimeError: the dtype can't hold it: too large, a fraction in integers, complex in real numbers.
        TypeError: it is no number.
    """
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): expected a number or a tensor, got {type(value).__name__}")
    if not _fits(value, dtype):
        raise RuntimeError(f"{name}(): value {value} cannot be converted to {dtype} without overflow or loss")
    return np.asarray(value).astype(dtype)[()]


def _fits(value: Any, dtype: np.dtype) -> bool:
    if isinstance(value, (complex, np.complexfloating)):
        return dtype.kind == "c"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return value == value // 1 and limits.min <= value <= limits.max
    return dtype.kind != "f" or not np.isfinite(value) or abs(value) <= np.finfo(dtype).max


def _check_mask(name, mask):
    dtype = getattr(mask, "dtype", type(mask).__name__)
    if dtype != np.bool:
        raise RuntimeError(f"{name}(): expected a bool tensor, got {dtype}")
