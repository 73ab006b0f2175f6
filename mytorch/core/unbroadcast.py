"""Undoes broadcasting: a gradient is summed over the dims that its input was stretched along. And says why
shapes don't broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends.blas import column_sums
from ..backends.device import RawArray, device_of, is_raw, move
from ..backends.door import forces, in_force
from ..backends.dtypes import is_half
from .grad_accumulator import LazyGrad
from .graph import Node, shown_name

_BLAS = (np.dtype("float32"), np.dtype("float64"))


def unbroadcast(grad: RawArray, shape: tuple[int, ...]) -> RawArray:
    """Returns `grad` summed to `shape`; half precision is summed in float32."""
    extra = grad.ndim - len(shape)
    is_large = in_force().choose(lambda: grad.size > 4096) if forces else grad.size > 4096
    if is_large and grad.shape[extra:] == shape and grad.dtype in _BLAS:  # a bias, usually
        return np.reshape(column_sums(np.reshape(grad, (math.prod(grad.shape[:extra]), -1))), shape)
    stretched = tuple([extra + i for i, n in enumerate(shape) if n == 1 and grad.shape[extra + i] != 1])
    dtype = np.float32 if is_half(grad.dtype) else None
    return np.reshape(np.sum(grad, axis=(*range(extra), *stretched), keepdims=True, dtype=dtype), shape)


def match(grad: RawArray | LazyGrad, node: Node, consumer: Node, i: int) -> RawArray | LazyGrad:
    """Returns `grad` in the shape, dtype and device of the node's output: broadcasting and casting undone.

    Raises:
        TypeError: it is no array.
        RuntimeError: the gradient, which the consumer's vjp returned for input i, doesn't fit: see
            `require_reducible`.
    """
    if node.shape is None:
        return grad
    if type(grad) is LazyGrad:
        fits = grad.shape == node.shape and grad.like.dtype == node.dtype
        if not node.parents and fits and device_of(grad.like) is node.device:
            return grad
        grad = grad.array()
    if not (is_raw(grad) or isinstance(grad, np.generic)):
        raise TypeError(
            f"Function {shown_name(consumer.name)} returned an invalid gradient at index {i} - got a "
            f"{type(grad).__name__} but expected an array"
        )
    if grad.shape != node.shape:
        require_reducible(grad.shape, node, consumer, i)
        grad = unbroadcast(grad, node.shape)
    if grad.dtype != node.dtype:
        grad = grad.real if grad.dtype.kind == "c" and node.dtype.kind != "c" else grad
        grad = grad.astype(node.dtype)
    if isinstance(grad, np.generic):  # NumPy's result where an array has no dimensions
        grad = np.asarray(grad)
    return grad if device_of(grad) is node.device else move(grad, node.device)


def require_reducible(shape: tuple[int, ...], node: Node, consumer: Node, i: int) -> None:
    """Raises unless a gradient of this shape can be summed to the shape of the node's output: that it has
    been broadcast from, by dims in front or dims of size 1.

    Raises:
        RuntimeError: PyTorch's message: what the consumer's vjp returned for input i has another shape.
    """
    extra = len(shape) - len(node.shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(node.shape, shape[extra:], strict=True)):
        raise RuntimeError(
            f"Function {shown_name(consumer.name)} returned an invalid gradient at index {i} - got "
            f"{list(shape)} but expected shape compatible with {list(node.shape)}"
        )


def shape_error(raws: Sequence[RawArray]) -> str | None:
    """Returns PyTorch's message for the first two arrays whose shapes can't be broadcast together."""
    so_far: tuple[int, ...] = ()
    for shape in [r.shape for r in raws if is_raw(r)]:
        ndim = max(len(so_far), len(shape))
        a, b = ((1,) * (ndim - len(s)) + tuple(s) for s in (so_far, shape))
        for dim in reversed(range(ndim)):
            if a[dim] != b[dim] and 1 not in (a[dim], b[dim]):
                return (
                    f"The size of tensor a ({a[dim]}) must match the size of tensor b ({b[dim]}) at "
                    f"non-singleton dimension {dim}: shapes {list(so_far)} and {list(shape)}"
                )
        so_far = tuple([m if n == 1 else n for m, n in zip(a, b, strict=True)])
    return None
