"""Selects, replaces or finds elements by a mask of bools."""

from __future__ import annotations

import numpy as np

from ..backends.device import has_values, is_raw
from ..core.op import NUMBERS, common_dtype, op, promoted, require_tensor
from ..core.tensor import Tensor
from .bounds import check_range
from .broadcast import broadcast_tensors, expand
from .gather_scatter import gather_nd
from .index import mask_at
from .scalars import Number, as_number
from .shape import reshape

__all__ = ["where", "masked_fill", "masked_select", "masked_scatter", "nonzero", "argwhere", "isin"]


def where(
    condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None
) -> Tensor | tuple[Tensor, ...]:
    """`input` where the condition is True, else `other`, broadcast and promoted; both may be numbers.

    The condition alone returns its indices, as `nonzero(as_tuple=True)`.

    Raises:
        RuntimeError: the condition is neither bool nor uint8, or the shapes can't be broadcast.
        TypeError: one of input and other is missing.

    >>> x = mytorch.tensor([-1, 2])
    >>> mytorch.where(x > 0, x, 0)
    tensor([0 2])
    """
    require_tensor(condition, "where")
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where(): expects either condition alone or both input and other")
    return _where(input, other, condition)


@op(half="float16")
def _where(x, y, condition):
    if condition.dtype == np.uint8:  # PyTorch's bools before there was a bool
        condition = np.not_equal(condition, 0)
    _check_mask("where", condition)
    dtype = common_dtype([x, y])
    if dtype.kind in "iu":
        x, y = (as_number(v, dtype, "where") if isinstance(v, NUMBERS) else v for v in (x, y))
    x, y = promoted([x, y])
    chosen = np.where(condition, x, y).astype(dtype, copy=False)
    return chosen, (lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g))


@op(half="float16")
def masked_fill(x, mask, value):
    """`value`, a number or a 0-d tensor, where the mask is True, else x; mask and x are broadcast together.

    Raises:
        RuntimeError: the mask is not bool; the shapes can't be broadcast; the value doesn't fit x's dtype.

    >>> mytorch.tensor([1.0, 2.0]).masked_fill(mytorch.tensor([True, False]), 0)
    tensor([0.00000 2.00000])
    """
    require_tensor(x, "masked_fill")
    _check_mask("masked_fill", mask)
    if not is_raw(value):
        value = as_number(value, x.dtype, "masked_fill")
    elif value.ndim:
        raise RuntimeError(f"masked_fill(): value must be a number or a 0-d tensor, got shape {value.shape}")
    filled = np.where(mask, value.astype(x.dtype), x).astype(x.dtype, copy=False)
    return filled, (lambda g: np.where(mask, 0, g), None, lambda g: np.where(mask, g, 0))


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is True, in order, with one dim; mask and x are broadcast together.

    Raises:
        RuntimeError: the mask is not bool, or the shapes can't be broadcast.

    >>> x = mytorch.tensor([1, -2, 3])
    >>> x.masked_select(x > 0)
    tensor([1 3])
    """
    require_tensor(input, "masked_select")
    _check_mask("masked_select", mask)
    try:
        shape = np.broadcast_shapes(input.shape, mask.shape)
    except ValueError:
        shapes = f"{list(input.shape)} and {list(mask.shape)}"
        raise RuntimeError(f"masked_select(): can't broadcast {shapes}") from None
    return mask_at(expand(input, shape), expand(mask, shape), 0)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source`, in order, where the mask is True, else the input; these two are broadcast.

    Raises:
        RuntimeError: the mask is not bool; dtypes differ; the shapes can't be broadcast; `source` has too few
            elements (on a GPU: after the next wait).

    >>> mytorch.zeros(3).masked_scatter(mytorch.tensor([True, False, True]), mytorch.tensor([1.0, 2.0]))
    tensor([1.00000 0.00000 2.00000])
    """
    require_tensor(input, "masked_scatter")
    require_tensor(source, "source of masked_scatter")
    _check_mask("masked_scatter", mask)
    if source.dtype != input.dtype:
        raise RuntimeError(f"masked_scatter(): expected a source of {input.dtype}, got {source.dtype}")
    input, mask = broadcast_tensors(input, mask)
    order = _rank_of_true(mask, source.numel())
    if source.numel() == 0:  # nothing is taken from it, but it is in the history
        return where(mask, source.sum(dtype=source.dtype), input)
    return where(mask, gather_nd(reshape(source, -1), order, dims=(0,)), input)


@op
def _rank_of_true(mask, limit):
    """Returns, for each element that is True, how many before it are."""
    order = np.cumsum(mask).reshape(mask.shape)
    text = f"masked_scatter(): {limit} elements for {{bad}} places in the mask"
    check_range(order.reshape(-1)[-1:], 0, limit + 1, text)
    return np.clip(order - 1, 0, max(limit - 1, 0)), None


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of the elements that are not zero (or not False), one row each; int64.

    Args:
        as_tuple: return a tensor for each dim instead, for use as an index; a 0-d tensor counts as 1-d.

    >>> mytorch.tensor([0, 3, 4]).nonzero()
    tensor([[1]
            [2]])
    """
    if as_tuple:
        return _nonzero_each_dim(reshape(input, 1) if input.ndim == 0 else input)
    return _nonzero(input)


argwhere = nonzero


@op(half="float16")
def _nonzero(x):
    if x.ndim == 0 and has_values(x):
        return np.zeros((int(x != 0), 0), np.int64, like=x), None
    return np.stack(np.nonzero(x)).T, None  # PyTorch's memory order, too


@op(half="float16")
def _nonzero_each_dim(x):
    return tuple(np.nonzero(x)), None


def isin(
    elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """Tests whether each element is in `test_elements`; bool, in the shape of `elements`.

    Args:
        elements, test_elements: tensors; one of them may be a number.
        assume_unique: without effect.
        invert: return which elements are not in it.

    Raises:
        RuntimeError: one of them is bool.
        TypeError: both are numbers.

    >>> mytorch.isin(mytorch.tensor([1, 2, 3]), mytorch.tensor([2, 5]))
    tensor([False  True False])
    """
    for x in (elements, test_elements):
        if isinstance(x, bool) or getattr(x, "dtype", None) == np.bool:
            raise RuntimeError("isin(): not implemented for bool")
    return _isin(elements, test_elements, bool(invert))


@op(promote="common", half="float16")
def _isin(elements, others, invert):
    arrays = [x for x in (elements, others) if is_raw(x)]  # CuPy's function takes no numbers
    elements, others = (np.asarray(x, like=arrays[0]) for x in (elements, others))
    return np.isin(elements, others, invert=invert), None


def _check_mask(name, mask):
    dtype = getattr(mask, "dtype", type(mask).__name__)
    if dtype != np.bool:
        raise RuntimeError(f"{name}(): expected a bool tensor, got {dtype}")
