"""Properties of a tensor: its sizes, strides and kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.address import address_of
from ..core.op import common_dtype
from ..core.tensor import Tensor, raw_of
from .memory_formats import contiguous_format, memory_format
from .scalars import Number

__all__ = [
    "is_complex", "is_floating_point", "is_nonzero", "is_same_size", "is_signed", "is_tensor", "numel",
    "result_type",
]


def is_tensor(obj: Any) -> bool:
    """Returns whether it is a Tensor.

    >>> mytorch.is_tensor(mytorch.ones(2)), mytorch.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Returns whether the dtype is a floating-point one.

    >>> mytorch.ones(2).is_floating_point()
    True
    """
    return dtypes.is_floating_point(input.dtype)


def is_complex(input: Tensor) -> bool:
    """Returns whether the dtype is a complex one.

    >>> mytorch.ones(2).is_complex()
    False
    """
    return input.dtype.kind == "c"


def is_signed(input: Tensor) -> bool:
    """Tests whether the dtype has negative numbers.

    >>> mytorch.ones(2, dtype=mytorch.uint8).is_signed()
    False
    """
    return input.dtype.kind in "ifcV"


def is_nonzero(input: Tensor) -> bool:
    """Tests whether the only element is not zero.

    Raises:
        RuntimeError: `input` doesn't have one element.

    >>> mytorch.tensor([0.0]).is_nonzero()
    False
    """
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Returns whether both have one shape.

    >>> mytorch.ones(2).is_same_size(mytorch.ones(3))
    False
    """
    return input.shape == other.shape


def result_type(tensor1: Tensor | Number, tensor2: Tensor | Number) -> np.dtype:
    """The dtype of an arithmetic operation on two tensors or numbers; see `mytorch.dtypes` for the rules.

    >>> mytorch.result_type(mytorch.ones(2), 1)
    dtype('float32')
    """
    return common_dtype([tensor1, tensor2])


def numel(input: Tensor) -> int:
    """The number of elements.

    >>> mytorch.ones(2, 3).numel()
    6
    """
    return raw_of(input).size


def dim(x: Tensor) -> int:
    """The number of dimensions.

    >>> mytorch.ones(2, 3).dim()
    2
    """
    return x.ndim


def size(x: Tensor, dim: int | None = None) -> int | tuple[int, ...]:
    """The shape, or the size of one dim.

    >>> mytorch.ones(2, 3).size(), mytorch.ones(2, 3).size(0)
    (Size([2, 3]), 2)
    """
    return x.shape if dim is None else _entry(x.shape, dim)


def stride(x: Tensor, dim: int | None = None) -> int | tuple[int, ...]:
    """The steps between neighbours along each dim, in elements.

    >>> mytorch.ones(2, 3).stride()
    (3, 1)
    """
    steps = tuple(step // x.itemsize for step in raw_of(x).strides)
    return steps if dim is None else _entry(steps, dim)


def _entry(values: tuple, dim: int) -> int:
    n = len(values)
    if not -n <= dim < n:
        expected = f"expected to be in range of [{-n}, {n - 1}]" if n else "a 0-d tensor has none"
        raise IndexError(f"Dimension out of range ({expected}, but got {dim})")
    return values[dim]


def element_size(x: Tensor) -> int:
    """The size of an element in bytes."""
    return x.itemsize


def data_ptr(x: Tensor) -> int:
    """The address of the first element, on its device."""
    return address_of(raw_of(x))


def is_contiguous(x: Tensor, memory_format: memory_format = contiguous_format) -> bool:
    """Tests whether the elements are in memory in the order of the indices, without gaps.

    Args:
        memory_format: `channels_last` for the order of the indices with dim 1 as the last one.

    >>> mytorch.ones(2, 3).T.is_contiguous()
    False
    """
    raw = raw_of(x)
    if memory_format.ndim is not None:
        if x.ndim != memory_format.ndim:
            return False
        raw = np.moveaxis(raw, 1, -1)
    return bool(raw.flags.c_contiguous)
