"""What a vjp holds on to: the arrays in its closure. An op says nothing about it; here it is found out."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import numpy as np

from ..backends.address import address_of
from ..backends.device import is_raw

_PLAIN = frozenset((int, float, bool, str, type(None), np.dtype))  # what most closures hold beside arrays


def closure_arrays(vjp: Any) -> list:
    """The raw arrays that a vjp holds on to."""
    held: list = []
    for f in vjp if isinstance(vjp, tuple) else (vjp,):
        if f is not None:
            _add_arrays(f, held)
    return held


def _add_arrays(f: Any, held: list) -> None:
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
                _add_arrays(value, held)
        elif kind is tuple or kind is list:
            for v in value:
                if type(v) not in _PLAIN and is_raw(v):
                    held.append(v)  # noqa: PERF401 - most of them hold numbers
        elif is_raw(value) or isinstance(value, np.inexact):
            held.append(value)  # a scalar is what NumPy makes of an array without dimensions


def extent(x: Any) -> tuple[int, int]:
    """Where the memory of a raw array begins, and where it has ended."""
    start = address_of(x) if type(x) is np.ndarray else x.data.ptr
    if x.flags.c_contiguous:
        return start, start + x.nbytes
    low = high = start
    for size, step in zip(x.shape, x.strides, strict=True):
        if step > 0:
            high += (size - 1) * step
        else:
            low += (size - 1) * step
    return low, high + x.itemsize


def holds(vjp: Any, place: tuple[int, int]) -> bool:
    """Does a vjp hold on to an array that lies there, or partly there?"""
    low, high = place
    for held in closure_arrays(vjp):
        if is_raw(held):
            first, end = extent(held)
            if first < high and low < end:
                return True
    return False


def shares_memory(a: Any, b: Any) -> bool:
    """Is `a` a view of `b`, or both of one array? By the arrays' owners, so that size 0 counts too."""
    return a is b or owner_of(a) is owner_of(b)


def owner_of(a: Any) -> Any:
    """The array that a view is one of, in the end; what isn't a view is its own."""
    base = getattr(a, "base", None)
    while base is not None:
        a, base = base, getattr(base, "base", None)  # strided windows lie on a stand-in for their array
    return a
