"""What a vjp holds on to: the arrays in its closure. An op says nothing about it; here it is found out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ..device import is_raw
from ..tensor import Tensor

_PLAIN = frozenset((int, float, bool, str, type(None), np.dtype))  # what most closures hold beside arrays


def saved(vjp: Any, tensors: Sequence[Any]) -> list:
    """The versions of those tensors whose arrays the vjp holds on to; it holds what its closure holds."""
    found, held = [], captured(vjp)
    if held:
        for t in tensors:
            if isinstance(t, Tensor):
                raw = t.data._array
                for h in held:
                    if h is raw or _overlap(h, raw):
                        found.append((t._version, t._version.count))
                        break
    return found


def captured(vjp: Any) -> list:
    """The raw arrays that a vjp holds on to."""
    held: list = []
    for f in vjp if isinstance(vjp, tuple) else (vjp,):
        if f is not None:
            _captured(f, held)
    return held


def _captured(f: Any, held: list) -> None:
    """Append the arrays that `f` holds: in its closure, as defaults, or as arguments of a partial."""
    if isinstance(f, functools.partial):
        values = [f.func, *f.args, *f.keywords.values()]
    else:
        values = list(getattr(f, "__defaults__", None) or ())
        for cell in getattr(f, "__closure__", None) or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # a variable that was never set
                continue
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            held.append(value)
        elif kind is FunctionType or kind is functools.partial:
            if value is not f:
                _captured(value, held)
        elif kind is tuple or kind is list:
            held.extend([v for v in value if type(v) not in _PLAIN and is_raw(v)])
        elif kind not in _PLAIN and (is_raw(value) or isinstance(value, np.inexact)):
            held.append(value)  # a scalar is what NumPy makes of an array without dimensions


def _overlap(a: Any, b: Any) -> bool:
    if isinstance(a, np.generic):
        return False
    return shares_memory(a, b) and bool(np.may_share_memory(a, b))


def shares_memory(a: Any, b: Any) -> bool:
    """Is `a` a view of `b`, or both of one array? By the arrays' owners, so that size 0 counts too."""
    return a is b or owner_of(a) is owner_of(b)


def owner_of(a: Any) -> Any:
    """The array that a view is one of, in the end; what isn't a view is its own."""
    while (base := getattr(a, "base", None)) is not None:  # strided windows lie on a stand-in for their array
        a = base
    return a
