"""What may stand between the brackets, and what the real CuPy does with it.

Slices, numbers, None and `...` give a view. Arrays and lists, of integers or booleans, give a copy; integers
out of range wrap around instead of raising. NumPy index arrays are taken too: CuPy copies them to the GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import array as arrays


def resolve(array: Any, key: Any) -> tuple[tuple, bool]:
    """The key for the NumPy array behind `array`, and whether it makes a copy.

    Raises:
        IndexError: an index array is neither integer nor boolean.
    """
    items = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    is_copy = any(isinstance(item, np.ndarray) for item in items)
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)  # so that NumPy gives a 0-d array rather than a scalar
    return tuple(_wrap_around(items, array.shape) if is_copy else items), is_copy


def _item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (list, tuple, bool, np.bool_, np.ndarray)):
        index = np.asarray(item)
        if isinstance(item, (list, tuple)) and index.size == 0:
            index = index.astype(np.intp)
    else:
        index = arrays.as_cupy(item)
        if index is None:
            return item
        index = arrays.raw(index)
    if index.dtype.kind not in "biu":
        raise IndexError(f"arrays used as indices must be of integer or boolean type, got {index.dtype}")
    return index


def _wrap_around(items: list, shape: tuple[int, ...]) -> list:
    used = sum(_axes(item) for item in items)
    axis, wrapped = 0, []
    for item in items:
        if isinstance(item, np.ndarray) and item.dtype.kind in "iu" and used <= len(shape) and shape[axis]:
            item = item.astype(np.intp) % shape[axis]
        wrapped.append(item)
        axis += len(shape) - used if item is Ellipsis else _axes(item)
    return wrapped


def _axes(item: Any) -> int:
    """How many axes an item takes; `...` takes what the others leave."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def assign(array: Any, key: Any, value: Any) -> None:
    """`array[key] = value`.

    Raises:
        ValueError: a view is assigned a NumPy array or a list (CuPy only fills it with a number).
    """
    key, is_copy = resolve(array, key)
    memory = arrays.raw(array)
    source = arrays.as_cupy(value)
    if source is not None:
        value = arrays.raw(source)
    else:
        value = np.asarray(value, array.dtype)
        if value.ndim and not is_copy:  # with index arrays CuPy does copy NumPy arrays and lists to the GPU
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
    memory[key] = value


# CuPy's atomic operations exist for some dtypes only.
_INTEGERS = "ilqILQ"
_AT = {
    "add": (np.add, "iILQefd"),
    "subtract": (np.subtract, "iI"),
    "maximum": (np.maximum, "iILQfd"),
    "minimum": (np.minimum, "iILQfd"),
    "bitwise_and": (np.bitwise_and, _INTEGERS),
    "bitwise_or": (np.bitwise_or, _INTEGERS),
    "bitwise_xor": (np.bitwise_xor, _INTEGERS),
}


def scatter(array: Any, key: Any, value: Any, name: str) -> None:
    """`cupy.add.at(array, key, value)` and its relatives: every repeated index counts.

    Raises:
        NotImplementedError: CuPy has no atomic operation of that name.
        TypeError: it has none for the dtype of `array`.
    """
    if name not in _AT:
        raise NotImplementedError(f"`{name}.at` is not supported by CuPy")
    function, dtypes = _AT[name]
    key, is_copy = resolve(array, key)
    if is_copy and array.dtype.char not in dtypes:
        raise TypeError(f"cupy.{name}.at doesn't support {array.dtype}")
    source = arrays.as_cupy(value)
    value = np.asarray(value, array.dtype) if source is None else arrays.raw(source).astype(array.dtype)
    function.at(arrays.raw(array), key, value)
