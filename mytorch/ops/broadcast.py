"""Dims of size 1 stretched to others without copying, for one tensor or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.op import op, require_tensor
from ..core.size import Size
from ..core.tensor import Tensor
from .dims import as_sizes
from .shape import as_writable, reshape

__all__ = [
    "expand", "expand_as", "broadcast_to", "broadcast_tensors", "broadcast_shapes", "meshgrid",
]


@op(view=True)
def expand(x, *sizes, size=None):
    """Dims of size 1 stretched, and new ones put in front, without copying; -1 keeps a dim.

    Raises:
        RuntimeError: a dim of another size than 1 would change.

    >>> mytorch.tensor([[1], [2]]).expand(2, 3)
    tensor([[1 1 1]
            [2 2 2]])
    """
    sizes = as_sizes(sizes if size is None else size, "expand")
    return _expanded(x, sizes), lambda g: g  # the engine sums over stretched dims


@op(view=True)
def broadcast_to(x, *sizes, size=None):
    """`x` expanded to these sizes, as by `expand`.

    >>> mytorch.broadcast_to(mytorch.arange(2), (2, 2))
    tensor([[0 1]
            [0 1]])
    """
    return _expanded(x, as_sizes(sizes if size is None else size, "broadcast_to")), lambda g: g


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` expanded to the shape of `other`.

    >>> mytorch.ones(1).expand_as(mytorch.ones(2, 3)).shape
    Size([2, 3])
    """
    return expand(x, other.shape)


def _expanded(x, sizes):
    new = len(sizes) - x.ndim
    if new < 0:
        raise RuntimeError(f"expand(): {len(sizes)} sizes {list(sizes)} for a tensor of {x.ndim} dimensions")
    before = (1,) * new + x.shape
    kept = [old if size == -1 else size for size, old in zip(sizes[new:], x.shape, strict=True)]
    shape = (*sizes[:new], *kept)
    for i, (size, old) in enumerate(zip(shape, before, strict=True)):
        if size < 0 or (size != old and old != 1):
            raise RuntimeError(
                f"the expanded size of the tensor ({size}) must match the existing size ({old}) at dimension "
                f"{i}; target sizes: {list(sizes)}, tensor sizes: {list(x.shape)}"
            )
    return as_writable(np.broadcast_to(x, shape), x)


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """The shape that tensors of these shapes are broadcast to.

    Raises:
        RuntimeError: they can't be, or a size is negative.

    >>> mytorch.broadcast_shapes((2, 1), (3,))
    Size([2, 3])
    """
    shapes = tuple([as_sizes((shape,), "broadcast_shapes") for shape in shapes])
    if any(n < 0 for shape in shapes for n in shape):
        raise RuntimeError(f"broadcast_shapes(): sizes can't be negative, got {shapes}")
    try:
        return Size(np.broadcast_shapes(*shapes))
    except ValueError:
        raise RuntimeError(f"broadcast_shapes(): these can't be broadcast to one shape: {shapes}") from None


def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors, expanded to one shape; views.

    Raises:
        RuntimeError: their shapes can't be broadcast.

    >>> a, b = mytorch.broadcast_tensors(mytorch.ones(2, 1), mytorch.ones(3))
    >>> a.shape, b.shape
    (Size([2, 3]), Size([2, 3]))
    """
    tensors = _one_list(tensors, "broadcast_tensors")
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return tuple([expand(x, shape) for x in tensors])


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates: result k has the elements of vector k along dim k, the same along all others.

    Args:
        tensors: vectors or 0-d tensors of one dtype; also in one list.
        indexing: "ij"; with "xy" the first two dims change places.

    Raises:
        RuntimeError: no tensors, one with more dims, different dtypes, or another `indexing`.

    >>> rows, columns = mytorch.meshgrid(mytorch.arange(2), mytorch.arange(3))
    >>> columns
    tensor([[0 1 2]
            [0 1 2]])
    """
    tensors = _one_list(tensors, "meshgrid")
    if not tensors:
        raise RuntimeError("meshgrid(): expects a non-empty list of tensors")
    if any(x.ndim > 1 for x in tensors) or len({(x.dtype, x.device) for x in tensors}) > 1:
        found = ", ".join(f"{x.dtype} {list(x.shape)}" for x in tensors)
        raise RuntimeError(f"meshgrid(): expects vectors of one dtype on one device, got {found}")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid(): indexing must be one of "xy" or "ij", got {indexing!r}')
    swap = indexing == "xy" and len(tensors) > 1
    order = [1, 0, *range(2, len(tensors))] if swap else range(len(tensors))
    shape = [tensors[i].numel() for i in order]
    grids = []
    for k, x in enumerate(tensors):
        alone = [1] * len(shape)
        alone[order[k]] = -1
        grids.append(expand(reshape(x, alone), shape))
    return tuple(grids)


def _one_list(tensors: Sequence, name: str) -> Sequence[Tensor]:
    """`f(x, y)` may be written f([x, y])."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        (tensors,) = tensors
    for i, x in enumerate(tensors):
        require_tensor(x, f"element {i} of {name}")
    return tensors
