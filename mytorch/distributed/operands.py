"""What users pass to a collective, as raw arrays: checked, contiguous, and with a way back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends.device import array_module, device_of, is_raw, on
from ..core.array import Array
from ..core.tensor import Tensor, increment_version
from .group import ProcessGroup
from .work import Work
from .world import as_group


def raw_of(where: str, tensor: Any) -> Any:
    """The raw array of a Tensor, an Array or a raw array.

    Raises:
        TypeError: it is none of these, or not of numbers.
    """
    raw = tensor.data if isinstance(tensor, Tensor) else tensor
    raw = raw._array if isinstance(raw, Array) else raw
    if not is_raw(raw):
        raise TypeError(
            f"{where}(): expected a Tensor, an Array, or a NumPy or CuPy array of numbers, "
            f"got {type(tensor).__name__}"
        )
    if raw.dtype.kind in "OSUMm" or raw.dtype.names or not raw.dtype.isnative:
        raise TypeError(f"{where}(): an array of dtype {raw.dtype} can't be sent")
    return raw


class Operand:
    """A tensor of the caller.

    Args:
        where: the function that it was passed to.
        tensor: a Tensor, an Array or a raw array.
        written: will it be written to?

    Attributes:
        own: the caller's raw array.
        raw: the same values, C-contiguous: `own` itself where it is so.

    Raises:
        TypeError: it is none of these, or not of numbers.
        ValueError: it must be written to, and can't be.
    """

    __slots__ = ("own", "raw", "_tensor")

    def __init__(self, where: str, tensor: Any, written: bool = False):
        self._tensor = tensor
        raw = raw_of(where, tensor)
        if written and isinstance(raw, np.ndarray) and not raw.flags.writeable:
            raise ValueError(f"{where}(): the array of shape {raw.shape} is read-only")
        self.own = raw
        with on(device_of(raw)):
            self.raw = raw if raw.flags.c_contiguous else raw.copy(order="C")

    def store(self) -> None:
        """Bring what was written to `raw` to the caller, and let graphs that need the old values notice."""
        if self.raw is not self.own:
            with on(device_of(self.own)):
                self.own[...] = self.raw
        if isinstance(self._tensor, Tensor):
            increment_version(self._tensor)


def operands(where: str, tensors: Any, count: int | None, written: bool = False) -> list[Operand]:
    """A list of tensors: `count` of them.

    Raises:
        TypeError: not a list.
        ValueError: more or fewer.
    """
    if not isinstance(tensors, Sequence):
        raise TypeError(f"{where}(): expected a list of tensors, got {type(tensors).__name__}")
    if count is not None and len(tensors) != count:
        raise ValueError(f"{where}(): expected {count} tensors, one a rank, got {len(tensors)}")
    return [Operand(where, tensor, written) for tensor in tensors]


def check_alike(where: str, first: Operand, others: Sequence[Operand]) -> None:
    """All of them have one shape, dtype and device.

    Raises:
        ValueError: they don't.
    """
    for other in others:
        if other.own.shape != first.own.shape:
            raise ValueError(f"{where}(): shapes {first.own.shape} and {other.own.shape} differ")
    check_kind(where, first, others)


def uneven(where: str, own: Operand, parts: Sequence[Operand], rank: int) -> tuple[list[int] | None, str]:
    """What a list with one tensor a rank says of their shapes: this rank's own is that of `parts[rank]`.

    Returns:
        the number of elements of each, or None if all have one shape; and what all ranks must agree on then.

    Raises:
        ValueError: it is of another shape, or dtypes or devices differ.
    """
    check_alike(where, own, [parts[rank]])
    check_kind(where, own, parts)
    shapes = [part.own.shape for part in parts]
    if all(shape == shapes[0] for shape in shapes):
        return None, ""
    return [part.own.size for part in parts], f", shapes={shapes}"


def check_kind(where: str, first: Operand, others: Sequence[Operand]) -> None:
    """All of them have one dtype and device.

    Raises:
        ValueError: they don't.
    """
    for other in others:
        if other.own.dtype != first.own.dtype:
            raise ValueError(f"{where}(): dtypes {first.own.dtype} and {other.own.dtype} differ")
        if device_of(other.own) is not device_of(first.own):
            raise ValueError(f"{where}(): devices {device_of(first.own)} and {device_of(other.own)} differ")


def check_ratio(where: str, large: Operand, small: Operand, size: int) -> None:
    """`large` has `size` times the elements of `small`, of the same dtype, on the same device.

    Raises:
        ValueError: it hasn't.
    """
    if large.own.size != size * small.own.size:
        raise ValueError(
            f"{where}(): shapes {large.own.shape} and {small.own.shape} don't fit: "
            f"the first must have {size} times as many elements, one part a rank"
        )
    check_kind(where, large, [small])


def check_own(where: str, sent: int, expected: int) -> None:
    """A rank sends itself as many elements as it expects.

    Raises:
        ValueError: it doesn't.
    """
    if sent != expected:
        raise ValueError(f"{where}(): this rank has {sent} elements for itself, and expects {expected}")


def check_tag(where: str, tag: Any) -> None:
    """The tag of a message is an int of at least 0.

    Raises:
        ValueError: it isn't.
    """
    if not isinstance(tag, (int, np.integer)) or tag < 0:
        raise ValueError(f"{where}(): a tag is an int of at least 0, got {tag!r}")


def stack(parts: Sequence[Operand]) -> Any:
    """The parts as rows of one new array."""
    with on(device_of(parts[0].raw)):
        return array_module(device_of(parts[0].raw)).stack([part.raw for part in parts])


def rows(like: Operand, count: int) -> Any:
    """A new array for `count` arrays like this one."""
    where = device_of(like.raw)
    with on(where):
        return array_module(where).empty((count, *like.raw.shape), like.raw.dtype)


def store_rows(table: Any, parts: Sequence[Operand]) -> Callable[[], None]:
    """What brings the rows of `table` to the callers' arrays."""

    def store():
        for row, part in zip(table, parts, strict=True):
            with on(device_of(part.raw)):
                part.raw[...] = row
            part.store()

    return store


def flat(parts: Sequence[Operand]) -> Any:
    """All elements of all parts in one new vector."""
    where = device_of(parts[0].raw)
    with on(where):
        return array_module(where).concatenate([part.raw.reshape(-1) for part in parts])


def empty_flat(parts: Sequence[Operand]) -> Any:
    """A new vector for all elements of all parts."""
    where = device_of(parts[0].raw)
    with on(where):
        return array_module(where).empty(sum(part.raw.size for part in parts), parts[0].raw.dtype)


def store_flat(vector: Any, parts: Sequence[Operand]) -> Callable[[], None]:
    """What brings a vector, cut into pieces, to the callers' arrays."""

    def store():
        start = 0
        for part in parts:
            piece = vector[start : start + part.raw.size]
            start += part.raw.size
            with on(device_of(part.raw)):
                part.raw[...] = piece.reshape(part.raw.shape)
            part.store()

    return store


def members(where: str, group: Any) -> ProcessGroup | None:
    """The group of a call; None, with a warning, if this rank isn't in it."""
    found = as_group(group)
    if found is None:
        warnings.warn(f"{where}(): this rank isn't in the group: nothing is done", stacklevel=3)
    return found


def root_of(where: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The rank in the group that `src` or `dst` (global) or `group_src` or `group_dst` names.

    Raises:
        TypeError: it is no int.
        ValueError: both or none are given, or that rank isn't in the group.
    """
    if (rank is None) == (group_rank is None):
        raise ValueError(
            f"{where}(): give either a global rank or a rank of the group, got {rank} and {group_rank}"
        )
    for given in (rank, group_rank):
        if given is not None and not isinstance(given, (int, np.integer)):
            raise TypeError(f"{where}(): a rank is an int, got {given!r}")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{where}(): {group!r} has no rank {group_rank}")
        return group_rank
    if rank not in group.ranks:
        raise ValueError(f"{where}(): rank {rank} is not in {group!r}")
    return group.ranks.index(rank)


def end(work: Work, async_op: bool, *written: Any) -> Work | None:
    """What a collective returns: the handle, with the tensors it writes, or, after a wait, None."""
    work.written = list(written)
    if async_op:
        return work
    work.wait()
    return None
