"""What a program's function calls for arrays that lie in memory as its instructions and loops need them."""

from __future__ import annotations

import numpy as np

from ...backends.device import RawArray
from ...backends.kinds import cupy
from ...core.grad_accumulator import LazyGrad


def flat(x: np.ndarray, size: int) -> np.ndarray:
    """Returns the elements in C order; writeable, for which alone loops are compiled.

    Raises:
        ValueError: the array has another size, for which the loop would read beyond its end.
    """
    if x.size != size:
        raise ValueError(f"a loop needs an array of {size} elements, got shape {x.shape}")
    flags = x.flags
    return (x if flags.c_contiguous and flags.writeable else np.array(x, order="C")).reshape(-1)


def in_order(x: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy if it isn't in C order, or read-only."""
    flags = x.flags
    return x if flags.c_contiguous and flags.writeable else np.array(x, order="C")


def arranged(x: RawArray | LazyGrad, strides: tuple[int, ...]) -> RawArray | LazyGrad:
    """Returns the array, or a copy with these strides, which are those of some order of its dims, if it has
    others."""
    if type(x) is LazyGrad or x.strides == strides or x.size < 2:
        return x
    pairs = zip(x.shape, x.strides, strides, strict=True)
    if all([n == 1 or ours == theirs for n, ours, theirs in pairs]):
        return x
    order = sorted(range(x.ndim), key=lambda d: -strides[d])
    made = np.empty([x.shape[d] for d in order], x.dtype, like=x)
    made = made.transpose([order.index(d) for d in range(x.ndim)])
    made[...] = x
    return made


def copied_as_it_lies(x: RawArray) -> RawArray:
    """Returns a copy of an array on a GPU with the same strides, also with gaps between elements."""
    if not x.size:
        return x.copy()
    pairs = [*zip(x.shape, x.strides, strict=True)]
    first = sum([(n - 1) * -step for n, step in pairs if step < 0]) // x.itemsize
    last = sum([(n - 1) * step for n, step in pairs if step > 0]) // x.itemsize
    memory = np.empty(first + last + 1, x.dtype, like=x)
    made = cupy().lib.stride_tricks.as_strided(memory[first:], x.shape, x.strides)
    made[...] = x
    return made


def writeable(x: np.ndarray) -> np.ndarray:
    """Returns the array, to which a loop writes as to a flat one.

    Raises:
        ValueError: it is read-only, or not in C order, and a flat array of it would be a copy.
    """
    if not (x.flags.writeable and x.flags.c_contiguous):
        raise ValueError("a loop can't write to an array that is read-only, or not in C order")
    return x


def as_it_is(x: RawArray) -> RawArray:
    """Returns the array: those on a GPU are never read-only."""
    return x
