"""
In-place forms that change a tensor's shape, not its elements: `x.t_()`, `x.unsqueeze_(0)`.

The tensor becomes a view of what it was: of an alias that no other code sees. Other views of it remain
views of that (`View.base`), so that what is written through one of them still reaches all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..core.tensor import Tensor, from_raw, increment_version, raw_of
from .inplace import check_history, recorded


def inplace_view(function: Callable) -> Callable:
    """The in-place form of an op that returns a view: `inplace_view(t)(x)` makes `x` its transpose.

    Raises (when called):
        RuntimeError: under autograd, `x` is a leaf that requires grad, a view of one, or one of several views
            that one op returned.
    """
    name = f"{function.__name__}_"

    @functools.wraps(function)
    def call(x: Tensor, *args, **kwargs) -> Tensor:
        if recorded((x,)):
            check_history(x, name)
        before = x.node
        out = function(_alias_of(x) if x._view is None else x, *args, **kwargs)
        if before is not None and x._view is not None:
            before.tensor = None  # its gradient has another shape
        x.data, x._view = out.data, out._view
        x._watch(out._node)
        increment_version(x)
        return x.requires_grad_() if before is not None and out._node is None else x  # a leaf, not recorded

    call.__name__ = call.__qualname__ = name
    return call


def _alias_of(x: Tensor) -> Tensor:
    former = from_raw(raw_of(x))
    former._version = x._version
    former._watch(x._node)
    return former
