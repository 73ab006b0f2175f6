"""Checks elements, as indices and classes, against their bounds.

On the CPU one that is outside is an error. On a GPU none is checked, since that would have to wait for it.
While a program is captured there are no elements: an instruction of it, `check(0 <= %1 < 4)`, checks them in
each run.
"""

from __future__ import annotations

import numpy as np

from ..backends.device import RawArray, thread
from ..core.tensor import Tensor, raw_of

ERRORS = {error.__name__: error for error in (IndexError, RuntimeError)}  # that are raised


def check_range(
    x: Tensor | RawArray, low: int, high: int, text: str, error: type[Exception] = RuntimeError,
    ignored: int | None = None,
) -> None:  # fmt: skip
    """Raises an error unless low <= x < high for all elements of a tensor, or array, of integers.

    Args:
        text: of the error; `{bad}`, `{min}` and `{max}` in it become the first element outside, the least and
            the greatest one.
        error: IndexError or RuntimeError.
        ignored: a number that is allowed, too.
    """
    if thread.tracer is not None:
        thread.tracer.check(x, low, high, text, error, ignored)
    elif isinstance(raw := raw_of(x), np.ndarray):
        require_range(raw, low, high, text, error, ignored)


def require_range(
    x: np.ndarray, low: int, high: int, text: str, error: type[Exception], ignored: int | None = None
) -> None:  # fmt: skip
    """`check_range` of an array on the CPU, which is checked now."""
    if is_within(x, low, high):
        return
    outside = x[((x < low) | (x >= high)) & (True if ignored is None else x != ignored)]
    if outside.size:
        for name, value in (("{bad}", outside[0]), ("{min}", x.min()), ("{max}", x.max())):
            text = text.replace(name, str(value))  # it may come from a file: no `format`
        raise error(text)


def is_within(x: np.ndarray, low: int, high: int) -> bool:
    """Returns whether low <= x < high for all elements; one pass finds it out if `low` is 0."""
    if not x.size:
        return True
    if low == 0:  # as unsigned numbers negative ones are huge
        return bool(x.view(f"u{x.itemsize}").max() < high)
    return bool(low <= x.min() and x.max() < high)
