"""Operands: the tensors that callers pass to collectives, as raw arrays: checked, contiguous, copied back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from ..backends.device import RawArray, array_module, device_of, is_raw, on
from ..core.array import Array
from ..core.tensor import Tensor, increment_version
from .process_group import ProcessGroup
from .work import TensorLike, Work
from .world import as_group


def raw_of(function: str, tensor: TensorLike) -> RawArray:
    """Returns the raw array of a Tensor, an Array or a raw array.

    Raises:
        TypeError: it is none of these, or not numeric.
    """
    raw = tensor.data if isinstance(tensor, Tensor) else tensor
    raw = raw._array if isinstance(raw, Array) else raw
    if not is_raw(raw):
        raise TypeError(
            f"{function}(): expected a Tensor, an Array, or a NumPy or CuPy array of numbers, "
            f"got {type(tensor).__name__}"
        )
    if raw.dtype.kind in "OSUMm" or raw.dtype.names or not raw.dtype.isnative:
        raise TypeError(f"{function}(): an array of dtype {raw.dtype} can't be sent")
    return raw


class Operand:
    """A tensor of the caller.

    Args:
        function: that it was passed to.
        tensor: a Tensor, an Array or a raw array.
        written: whether the operation writes it.

    Attributes:
        array: the caller's raw array.
        raw: the same values, C-contiguous: `array` itself if it is.

    Raises:
        TypeError: it is none of these, or not numeric.
        ValueError: it is written, but read-only.
    """

    __slots__ = ("array", "raw", "_tensor")

    def __init__(self, function: str, tensor: TensorLike, written: bool = False):
        self._tensor = tensor
        raw = raw_of(function, tensor)
        self.array = raw
        if written:
            self.require_writable(function)
        with on(device_of(raw)):
            self.raw = raw if raw.flags.c_contiguous else raw.copy(order="C")

    def require_writable(self, function: str) -> None:
        if not getattr(self.array.flags, "writeable", True):  # CuPy's all are
            raise ValueError(f"{function}(): the array of shape {self.array.shape} is read-only")

    def store(self) -> None:
        """Copies `raw` to the caller's array, and increments the version counter of a Tensor."""
        if self.raw is not self.array:
            with on(device_of(self.array)):
                self.array[...] = self.raw
        if isinstance(self._tensor, Tensor):
            increment_version(self._tensor)


def operands(
    function: str, tensors: Sequence[TensorLike], count: int | None, written: bool = False
) -> list[Operand]:
    """Returns the operands of a list of `count` tensors.

    Raises:
        TypeError: not a list.
        ValueError: another number of tensors.
    """
    if not isinstance(tensors, Sequence):
        raise TypeError(f"{function}(): expected a list of tensors, got {type(tensors).__name__}")
    if count is not None and len(tensors) != count:
        raise ValueError(f"{function}(): expected {count} tensors, one per rank, got {len(tensors)}")
    return [Operand(function, tensor, written) for tensor in tensors]


def check_same(function: str, first: Operand, others: Sequence[Operand]) -> None:
    """Raises ValueError unless all have the same shape, dtype and device."""
    for other in others:
        if other.array.shape != first.array.shape:
            raise ValueError(f"{function}(): shapes {first.array.shape} and {other.array.shape} differ")
    check_same_kind(function, first, others)


def check_same_kind(function: str, first: Operand, others: Sequence[Operand]) -> None:
    """Raises ValueError unless all have the same dtype and device."""
    for other in others:
        if other.array.dtype != first.array.dtype:
            raise ValueError(f"{function}(): dtypes {first.array.dtype} and {other.array.dtype} differ")
        devices = device_of(first.array), device_of(other.array)
        if devices[0] is not devices[1]:
            raise ValueError(f"{function}(): devices {devices[0]} and {devices[1]} differ")


def uneven_counts(
    function: str, own: Operand, tensors: Sequence[Operand], rank: int
) -> tuple[list[int] | None, str]:
    """Returns the number of elements of each tensor and their shapes as text; None, "" if shapes are equal.

    Raises:
        ValueError: the shapes of `own` and `tensors[rank]`, or dtypes or devices, differ.
    """
    check_same(function, own, [tensors[rank]])
    check_same_kind(function, own, tensors)
    shapes = [tensor.array.shape for tensor in tensors]
    if all(shape == shapes[0] for shape in shapes):
        return None, ""
    return [tensor.array.size for tensor in tensors], f", shapes={shapes}"


def check_ratio(function: str, large: Operand, small: Operand, size: int) -> None:
    """Raises ValueError unless `large` has `size` times the elements of `small`; same dtype and device."""
    if large.array.size != size * small.array.size:
        raise ValueError(
            f"{function}(): shapes {large.array.shape} and {small.array.shape} don't fit: "
            f"the first must have {size} times as many elements, one part per rank"
        )
    check_same_kind(function, large, [small])


def check_own_count(function: str, sent: int, expected: int) -> None:
    """Raises ValueError unless a rank sends itself as many elements as it expects."""
    if sent != expected:
        raise ValueError(f"{function}(): this rank sends itself {sent} elements, and expects {expected}")


def check_tag(function: str, tag: int) -> None:
    """Raises ValueError unless a tag is an int of at least 0."""
    if not isinstance(tag, (int, np.integer)) or tag < 0:
        raise ValueError(f"{function}(): a tag is an int of at least 0, got {tag!r}")


def stack(tensors: Sequence[Operand]) -> RawArray:
    """Returns the tensors as rows of a new array."""
    with on(device_of(tensors[0].raw)):
        return array_module(device_of(tensors[0].raw)).stack([tensor.raw for tensor in tensors])


def empty_rows(like: Operand, count: int) -> RawArray:
    """Returns a new array with `count` rows of this shape."""
    device = device_of(like.raw)
    with on(device):
        return array_module(device).empty((count, *like.raw.shape), like.raw.dtype)


def store_rows(table: RawArray, tensors: Sequence[Operand]) -> Callable[[], None]:
    """Returns a function that copies the rows of `table` to the callers' arrays."""

    def store() -> None:
        for row, tensor in zip(table, tensors, strict=True):
            with on(device_of(tensor.raw)):
                tensor.raw[...] = row
            tensor.store()

    return store


def flatten(tensors: Sequence[Operand]) -> RawArray:
    """Returns all elements of all tensors in a new vector."""
    device = device_of(tensors[0].raw)
    with on(device):
        return array_module(device).concatenate([tensor.raw.reshape(-1) for tensor in tensors])


def empty_flat(tensors: Sequence[Operand]) -> RawArray:
    """Returns a new vector for all elements of all tensors."""
    device = device_of(tensors[0].raw)
    with on(device):
        return array_module(device).empty(sum(tensor.raw.size for tensor in tensors), tensors[0].raw.dtype)


def store_flat(vector: RawArray, tensors: Sequence[Operand]) -> Callable[[], None]:
    """Returns a function that copies the slices of a vector to the callers' arrays."""

    def store() -> None:
        start = 0
        for tensor in tensors:
            values = vector[start : start + tensor.raw.size]
            start += tensor.raw.size
            with on(device_of(tensor.raw)):
                tensor.raw[...] = values.reshape(tensor.raw.shape)
            tensor.store()

    return store


def group_of(function: str, group: ProcessGroup | None) -> ProcessGroup | None:
    """Returns the group of a call; None, with a warning, if this rank isn't a member."""
    found = as_group(group)
    if found is None:
        warnings.warn(f"{function}(): this rank isn't in the group: nothing is done", stacklevel=3)
    return found


def root_of(function: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """Returns the group rank that `src` or `dst` (global) or `group_src` or `group_dst` names.

    Raises:
        TypeError: it isn't an int.
        ValueError: both or none are passed, or that rank isn't in the group.
    """
    if (rank is None) == (group_rank is None):
        raise ValueError(
            f"{function}(): pass either a global rank or a rank of the group, got {rank} and {group_rank}"
        )
    for value in (rank, group_rank):
        if value is not None and not isinstance(value, (int, np.integer)):
            raise TypeError(f"{function}(): a rank is an int, got {value!r}")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{function}(): {group!r} has no rank {group_rank}")
        return group_rank
    if rank not in group.ranks:
        raise ValueError(f"{function}(): rank {rank} is not in {group!r}")
    return group.ranks.index(rank)


def wait_unless_async(work: Work, async_op: bool, *outputs: TensorLike) -> Work | None:
    """Returns the handle with the tensors that it writes; if not `async_op`, waits and returns None."""
    work.outputs = list(outputs)
    if async_op:
        return work
    work.wait()
    return None
