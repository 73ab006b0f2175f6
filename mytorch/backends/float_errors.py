"""Turns NumPy's floating-point warnings off around an op, as `np.errstate(all="ignore")` does, only cheaper.

Inf and NaN are values here, as in PyTorch. `np.errstate` is a Python class, whose three calls cost as much as
a small addition; what they set is one context variable. A NumPy that has another one gets `np.errstate`
itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class _ErrState:
    """The same two functions with `np.errstate`."""

    def set(self, _: object) -> np.errstate:
        context = np.errstate(all="ignore")
        context.__enter__()
        return context

    def reset(self, token: np.errstate) -> None:
        token.__exit__(None, None, None)


def _choose() -> tuple[Any, Any]:
    try:
        from numpy._core.umath import _extobj_contextvar, _make_extobj
    except ImportError:
        return _ErrState(), None
    return _extobj_contextvar, _make_extobj(all="ignore")


errors, IGNORE = _choose()
"""`token = errors.set(IGNORE)` turns the warnings off in this thread; `errors.reset(token)` restores them."""
