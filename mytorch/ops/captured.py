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


def saved(vjp: Any, tensors: Sequence[Any]) -> Sequence:
    """The versions of those tensors whose arrays the vjp holds on to; it holds what its closure holds."""
    held: dict[int, list] = {}  # by their owner
    for h in captured(vjp):
        held.setdefault(id(owner_of(h)), []).append(h)
    if not held:
        return ()
    found = []
    for t in tensors:
        if isinstance(t, Tensor):
            raw = t.data._array
            for h in held.get(id(owner_of(raw)), ()):
                if h is raw or np.may_share_memory(h, raw):
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
    if type(f) is functools.partial:
        values = [f.func, *f.args, *f.keywords.values()]
    else:
        values = [*(getattr(f, "__defaults__", None) or ())]
        for cell in getattr(f, "__closure__", None) or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # a variable that was never set
                continue
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            held.append(value)
        elif kind in _PLAIN:
            continue
        elif kind is FunctionType or kind is functools.partial:
            if value is not f:
                _captured(value, held)
        elif kind is tuple or kind is list:
            for v in value:
                if type(v) not in _PLAIN and is_raw(v):
                    held.append(v)  # noqa: PERF401 - most of them hold numbers
        elif is_raw(value) or isinstance(value, np.inexact):
            held.append(value)  # a scalar is what NumPy makes of an array without dimensions


def shares_memory(a: Any, b: Any) -> bool:
    """Is `a` a view of `b`, or both of one array? By the arrays' owners, so that size 0 counts too."""
    return a is b or owner_of(a) is owner_of(b)


def owner_of(a: Any) -> Any:
    """The array that a view is one of, in the end; what isn't a view is its own."""
    base = getattr(a, "base", None)
    while base is not None:
        a, base = base, getattr(base, "base", None)  # strided windows lie on a stand-in for their array
    return a
