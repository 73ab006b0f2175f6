"""x[index] and x[index] = value.

An index has two parts, as in PyTorch: the basic one (ints, slices, None, …), which makes a view, and the
arrays (integers or masks), which gather elements from that view. NumPy differs only where a slice comes
between an int and an array: here `x[0, :, [1, 2]]` is `x[0][:, [1, 2]]`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.device import (
    CPU,
    RawArray,
    computes,
    device_of,
    has_values,
    in_kind_of,
    is_raw,
    is_readable,
    move,
    on,
)
from ..backends.door import forces, in_force
from ..core.array import Array
from ..core.op import NUMBERS, index_of, op, require_tensor
from ..core.overriding import overriding
from ..core.tensor import Tensor, raw_of
from .bounds import check_index
from .broadcast import expand
from .cast import clone
from .dims import as_int, canonical_dim
from .gather_scatter import FULL, gather_nd, gather_nd_shape, scatter_nd, slice_at, slice_scatter
from .inplace import write

__all__ = ["index_put", "select", "narrow"]

_PLAIN = {int, slice, type(None), type(Ellipsis)}


def getitem(x: Tensor, index: object) -> Tensor:
    """x[index]: a view if the index has only ints, slices, None and `…`, a copy if it has arrays or bools.

    Raises:
        IndexError: out of bounds (of arrays on a GPU: after the next wait), too many indices, a mask of
            another shape, or something that is no index.
        ValueError: a slice with a step that isn't positive.
    """
    if overriding and (answer := overriding.dispatch(getitem, (x, index), {})) is not NotImplemented:
        return answer
    basic, arrays = _read(x, index)
    if basic is not None:
        x = slice_at(x, basic)
    if not arrays:
        return x
    dims = tuple(arrays)
    if len(arrays) == 1 and arrays[dims[0]].dtype == bool:
        return mask_at(x, arrays[dims[0]], dims[0])
    _check_arrays("getitem", x, arrays)
    result = gather_nd(x, *arrays.values(), dims=dims)
    if all([array.ndim == 0 for array in arrays.values()]):
        in_force().picked(x, result)
    return result


def setitem(x: Tensor, index: object, value: object) -> None:
    """x[index] = value, broadcast and cast; differentiable in both.

    Raises:
        IndexError, ValueError: as for `getitem`.
        RuntimeError: the value can't be broadcast to x[index], or `x` can't be written (see `ops.inplace`).
        TypeError: the value is no tensor, array, number or nested list of numbers.
    """
    if overriding and overriding.dispatch(setitem, (x, index, value), {}) is not NotImplemented:
        return
    if not isinstance(value, (Tensor, Array, *NUMBERS)) and not is_raw(value):
        value = Array(value, device=x.device)
    _set(x, index, value, "__setitem__")


def _set(x: Tensor, index: object, value: object, name: str) -> None:
    basic, arrays = _read(x, index)
    if not arrays:
        write(x, value, basic, name)
        return
    if basic is not None:
        x = slice_at(x, basic)
    _check_arrays("setitem", x, arrays)
    with on(x.device):
        at = _raw_index(_masks_to_indices(arrays) if getattr(value, "ndim", 0) > 1 else arrays, x.ndim)
    write(x, value, at, name)


def index_put(input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the input in which y[indices] = values; with `accumulate` they are added, as often as named.

    Args:
        indices: a tuple of tensors of integers or bools.
        values: a tensor of the input's dtype that broadcasts to input[indices].

    Raises:
        IndexError, RuntimeError: as for x[indices] = values.
        TypeError: arguments that aren't tensors.

    >>> mytorch.zeros(3).index_put((mytorch.tensor([2]),), mytorch.tensor(1.0))
    tensor([0.00000 0.00000 1.00000])
    """
    require_tensor(input, "index_put")
    return index_put_(clone(input), indices, values, accumulate)


def index_put_(x: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put` in place."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"index_put(): indices must be a tuple of tensors, got {type(indices).__name__}")
    for i, array in enumerate((*indices, values)):
        require_tensor(array, f"tensor {i} of index_put")
    masks = values.numel() == 1 and all(array.dtype == bool for array in indices)
    if values.dtype != x.dtype and not masks:  # as numbers go into a mask
        raise RuntimeError(
            f"index_put(): expected values of the tensor's dtype {x.dtype}, got {values.dtype}"
        )
    if not accumulate:
        _set(x, tuple(indices), values, "index_put_")
        return x
    basic, arrays = _read(x, tuple(indices))
    part = x if basic is None else slice_at(x, basic)
    if arrays:
        _check_arrays("index_put", part, arrays)
        with on(x.device):
            arrays = _masks_to_indices(arrays)
            raws, dims = tuple([raw_of(a).copy() for a in arrays.values()]), tuple(arrays)
        values = expand(values, gather_nd_shape(raws, dims, part.shape))
        values = scatter_nd(values, raws, dims, tuple(part.shape))
    write(part, part + values, name="index_put_")
    return x


def _check_arrays(name: str, x: Tensor, arrays: dict[int, Tensor | RawArray]) -> None:
    if computes(raw_of(x)) is CPU:
        return  # NumPy does it
    for dim, array in arrays.items():
        check_index(array, dim, raw_of(x).shape[dim], name)


def _raw_index(arrays: dict[int, Tensor | RawArray], ndim: int) -> tuple:
    """The index arrays at their dims, ready for a raw array; copies, as backward reads them later."""
    index = [FULL] * ndim
    for dim, array in arrays.items():
        index[dim] = raw_of(array).copy()
        if array.dtype == bool:
            del index[dim + 1 : dim + array.ndim]
    return tuple(index)


# The ops.


@op(half=True)
def mask_at(x, mask, dim):
    """x[:, …, mask] for a mask of the dims from `dim` on: the elements where it is True, in order."""
    shape = x.shape
    flat = (*shape[:dim], math.prod(mask.shape), *shape[dim + mask.ndim :])
    chosen = np.flatnonzero(mask)
    index = (*(FULL,) * dim, chosen)
    y = np.take(x.reshape(flat), chosen, axis=dim)
    return y, lambda g: slice_scatter.dual(g, index, flat).reshape(shape)


@op(view=True)
def select(input, dim, index):
    """x[:, …, index] with `index` at `dim`: a view without that dim.

    >>> mytorch.tensor([[1, 2], [3, 4]]).select(1, 0)
    tensor([1 3])
    """
    if input.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-d tensor")
    dim, index = canonical_dim(dim, input.ndim), as_int(index)
    size = input.shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {dim}"
        )
    return slice_at.forward(input, (*(FULL,) * dim, index, ...))


@op(view=True)
def narrow(input, dim, start, length):
    """x[:, …, start : start + length] with the slice at `dim`: a view.

    >>> mytorch.arange(5).narrow(0, 1, 3)
    tensor([1 2 3])
    """
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-d tensor")
    if is_raw(start) and (start.ndim or start.dtype.kind not in "iu"):
        raise RuntimeError(
            f"narrow(): start must be a 0-d tensor of integers, got {start.dtype} {start.shape}"
        )
    dim, start, length = canonical_dim(dim, input.ndim), as_int(start), as_int(length)
    size = input.shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"narrow(): start is expected to be in range of [{-size}, {size}], got {start}")
    start += size if start < 0 else 0
    if length < 0 or start + length > size:
        raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({size})")
    return slice_at.forward(input, (*(FULL,) * dim, slice(start, start + length)))


# Reading an index.


def _read(x: Tensor, index: object) -> tuple[tuple | None, dict[int, Tensor | RawArray]]:
    """The basic part (None: all of x), and the index arrays by their dim in its result."""
    if isinstance(index, list) and _is_like_a_tuple(index):
        index = tuple(index)
    items = index if isinstance(index, tuple) else (index,)
    if forces:
        items = tuple([_plain_slice(i) if type(i) is slice else i for i in items])
    if _PLAIN.issuperset(map(type, items)):
        for i in items:
            _check_step(i)
        if (ellipses := items.count(...)) < 2:
            return (items if ellipses else (*items, ...)), {}
    read = []
    for i in items:  # no comprehension: the warning in _index_array counts the frames up to the user's line
        read.append(_item(i, x))
    if forces and len({_is_element(i) for i in read if not isinstance(i, (*_PLAIN,))}) > 1:
        read = [int(i) if _is_element(i) else i for i in read]  # beside arrays
    taken = sum(_dims_taken(i) for i in read)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}, got {taken}")
    while read and read[-1] is Ellipsis:  # whatever is left
        read.pop()
    if taken < x.ndim and sum(i is Ellipsis for i in read) > 1:
        raise IndexError("an ellipsis (`...`) after another one that stands for dims must be the last item")
    with on(x.device):
        basic, arrays = _split_index(x, read, x.ndim - taken)
        return basic, _masks_to_indices(arrays) if len(arrays) > 1 else arrays


def _is_like_a_tuple(index: list) -> bool:
    """Returns whether a list is read as a tuple: PyTorch does so if it is short and has more than numbers."""
    parts = (Tensor, Array, list, tuple, range, slice, np.ndarray, type(Ellipsis), type(None))
    if len(index) >= 32 or not any([isinstance(i, parts) for i in index]):
        return False
    warnings.warn(
        "x[[a, b]] with lists or tensors a, b is taken as x[a, b], as in PyTorch; write x[a, b], or one "
        "array", stacklevel=4,
    )
    return True


def _split_index(x: Tensor, items: list, rest: int) -> tuple[tuple | None, dict[int, Tensor | RawArray]]:
    """The items in two parts; `rest` is how many dims an ellipsis stands for."""
    basic, arrays = [], {}
    source = target = 0  # the next dim of x, and of the basic part's result
    for i in items:
        taken = rest if i is Ellipsis else _dims_taken(i)
        if i is Ellipsis:
            here = [FULL] * rest
        elif isinstance(i, (*_PLAIN,)):
            here = [i]
        elif i.ndim == 0 and i.dtype == bool:  # a single True or False: a new dim of size 1 or 0
            here = [None]
            arrays[target] = np.zeros(int(i), np.int64, like=raw_of(x))
        else:
            here = [FULL] * taken
            if i.dtype == bool and i.shape != x.shape[source : source + taken]:
                raise IndexError(
                    f"the shape of the mask {list(i.shape)} does not match the shape of the indexed tensor "
                    f"{list(x.shape)} at dimension {source}"
                )
            if i.dtype == bool and has_values(i) and not is_readable(raw_of(x)):  # its places are known
                places = _masks_to_indices({target: i})
                arrays.update({dim: move(place, x.device) for dim, place in places.items()})
            else:
                arrays[target] = i
        basic += here
        source += taken
        target += 0 if isinstance(i, int) else len(here)
    is_whole = arrays and all(type(b) is slice and b == FULL for b in basic)
    return None if is_whole else (*basic, ...), arrays


def _item(i: object, x: Tensor) -> Any:
    """One item of an index: an int, slice, None, `…`, or an array of integers or bools on x's device."""
    if type(i) in _PLAIN:
        _check_step(i)
        return i
    if isinstance(i, (bool, np.bool_)):
        return np.asarray(i)
    if isinstance(i, (list, tuple, range)):
        i = _array_of(i)
    if isinstance(i, (Tensor, Array)) or is_raw(i):
        return _index_array(i, x)
    try:
        return index_of(i)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and arrays of integers or bools are valid "
            f"indices, got {type(i).__name__}"
        ) from None


def _array_of(i: object) -> np.ndarray:
    try:
        array = np.asarray(i)
    except ValueError as error:
        raise IndexError(f"this list can't be an index: {error}") from None
    return array if array.size else array.astype(np.int64)


def _index_array(i: object, x: Tensor) -> Any:
    raw, target = raw_of(i), x.device
    if raw.dtype.kind not in "iub":
        raise IndexError(f"tensors used as indices must be of an integer dtype or bool, got {raw.dtype}")
    raw = in_kind_of(raw, target)
    if device_of(raw) is not target and device_of(raw) is not CPU:
        names = device_of(raw).full_name, target.full_name
        raise RuntimeError("the index is on {}, the indexed tensor on {}".format(*names))
    if raw.dtype == np.uint8:
        warnings.warn("indexing with uint8 is taken as a mask, as in PyTorch; use bool instead", stacklevel=6)
        with on(device_of(raw)):
            raw = raw.astype(bool)
    if _is_element(raw) and in_force().takes_index(raw):
        return raw
    if raw.ndim == 0:  # where nothing is known, all results have one shape
        return raw if raw.dtype == bool else int(raw) if is_readable(raw) else 0
    if raw.dtype.kind == "u":
        raw = raw.astype(np.int64)
    if raw.dtype == bool and has_values(raw) and not is_readable(raw_of(x)):
        return raw  # `_split_index` counts what it chooses
    same = isinstance(i, Tensor) and raw is raw_of(i) and device_of(raw) is target
    return i if same else move(raw, target)  # a Tensor stays one: autograd notices if it is written to later


def _is_element(i: object) -> bool:
    """Whether an item of an index is an array without dims of an integer."""
    return getattr(i, "ndim", None) == 0 and i.dtype != bool


def _check_step(i: object) -> None:
    if type(i) is slice and i.step is not None and i.step <= 0:
        raise ValueError(f"step must be greater than zero, got {i.step}")


def _plain_slice(i: slice) -> slice:
    """Returns a slice whose bounds may be tensors, which a captured program asks for, with ints."""
    bounds = (i.start, i.stop, i.step)
    return slice(*[index_of(x) if isinstance(x, (Tensor, Array)) else x for x in bounds])


def _dims_taken(i: object) -> int:
    """Returns the number of dims of the tensor that an item of an index stands for."""
    if isinstance(i, (*_PLAIN,)):
        return 0 if i is None or i is Ellipsis else 1
    return i.ndim if i.dtype == bool else 1


def _masks_to_indices(arrays: dict[int, Tensor | RawArray]) -> dict[int, Tensor | RawArray]:
    """Masks as the integer arrays of the places where they are True."""
    found = {}
    for dim, array in arrays.items():
        if array.dtype == bool:
            found.update({dim + i: index for i, index in enumerate(raw_of(array).nonzero())})
        else:
            found[dim] = array
    return found
