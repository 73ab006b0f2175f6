"""
Does anybody else hold this array? If not, a gradient can become a leaf's `.grad`, or be added to, without a
copy. A vjp may return what it likes: the incoming gradient, a view of it, an array that its closure keeps.
CPython counts the references to an object, and that tells them apart.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_owned(array: Any) -> bool:
    """Is the caller's local variable all that leads to this NumPy array and its memory?

    A view counts, too, if it is all that is left of the array that it is a view of.
    """
    if type(array) is not np.ndarray or not array.flags.writeable:
        return False
    base = array.base
    if base is None:
        return sys.getrefcount(array) <= _OF_ARRAY
    return (
        sys.getrefcount(array) <= _OF_ARRAY
        and type(base) is np.ndarray
        and base.base is None
        and base.nbytes == array.nbytes
        and sys.getrefcount(base) <= _OF_BASE
    )


def _references(array: np.ndarray) -> tuple[int, int]:
    """What `is_owned` counts for an array and for its base."""
    base = array.base
    return sys.getrefcount(array), sys.getrefcount(base)


def _of_a_sole_one() -> tuple[int, int]:
    view = np.empty(2).reshape(1, 2)
    return _references(view)


_OF_ARRAY, _OF_BASE = _of_a_sole_one()  # versions of Python count the arguments of calls differently
