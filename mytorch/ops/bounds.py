"""Checks elements, as indices and classes, against their bounds.

One that is outside is an error. On a GPU it is raised by a later call, the first that waits for the GPU: see
`backends.gpu_errors`. While a program is captured there are no elements: an instruction of it,
`check(0 <= %1 < 4)`, checks them in each run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..backends import gpu_errors
from ..backends.device import RawArray, computes, has_values, is_on_gpu
from ..backends.door import in_force
from ..core.tensor import Tensor, raw_of

ERRORS = {error.__name__: error for error in (IndexError, RuntimeError, ValueError)}  # that are raised


def check_range(
    x: Tensor | RawArray, low: int, high: int, text: str, error: type[Exception] = RuntimeError,
    ignored: int | None = None,
) -> None:
    """Raises an error unless low <= x < high for all elements of a tensor, or array, of integers.

    Args:
        text: of the error; `{bad}` in it becomes the first element outside, or on a GPU any of them.
        error: IndexError, RuntimeError or ValueError.
        ignored: a number that is allowed, too.
    """
    raw = raw_of(x)
    if in_force().checks(x, low, high, text, error, ignored) or not has_values(raw):
        return
    check = gpu_errors.check_range if is_on_gpu(raw) else require_range
    check(raw, low, high, text, error, ignored)


def check_index(x: Tensor | RawArray, dim: int, size: int, name: str) -> None:
    """Raises an IndexError unless -size <= x < size for an index of integers, with which an op is about to
    read or write: on the CPU NumPy does so itself, while CuPy takes an index modulo the size."""
    if computes(raw_of(x)).kernels == "cuda" and x.dtype != bool:
        text = f"{name}(): index {{bad}} is out of bounds for dimension {dim} with size {size}"
        check_range(x, -size, size, text, IndexError)


def require_all(
    valid: RawArray, text: str, error: type[Exception] = RuntimeError,
    found: Callable[[], object] | None = None, waits: bool = True,
) -> None:
    """Raises an error unless all elements of an array of bools are true.

    Args:
        found: returns what the values are, for the error's text, where they are known.
        waits: a GPU is waited for; without, its arrays aren't looked at.
    """
    raw = raw_of(valid)
    if in_force().checks(valid, 1, 2, text, error, None) or not has_values(raw):
        return
    if (waits or not is_on_gpu(raw)) and not np.all(raw):
        raise error(text if found is None else f"{text}, got {found()}")


def require_range(
    x: np.ndarray, low: int, high: int, text: str, error: type[Exception], ignored: int | None = None
) -> None:
    """`check_range` of an array on the CPU, which is checked now."""
    if is_within(x, low, high):
        return
    outside = x[((x < low) | (x >= high)) & (True if ignored is None else x != ignored)]
    if outside.size:
        raise error(text.replace("{bad}", str(outside[0])))  # it may come from a file: no `format`


def is_within(x: np.ndarray, low: int, high: int) -> bool:
    """Returns whether low <= x < high for all elements; one pass finds it out if `low` is 0."""
    if not x.size:
        return True
    if low == 0:  # as unsigned numbers negative ones are huge
        return bool(x.view(f"u{x.itemsize}").max() < high)
    return bool(low <= x.min() and x.max() < high)
