"""The arrays in a vjp's closure: what an op saves for the backward pass, without saying so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TypeAlias

import numpy as np

from ..backends.address import address_of
from ..backends.device import RawArray, is_raw

Vjp: TypeAlias = Callable | tuple | None  # of all arguments, or of each; None: freed, or no gradient

_PLAIN = frozenset((int, float, bool, str, type(None), np.dtype))  # what most closures hold beside arrays


def closure_arrays(vjp: Vjp) -> list[RawArray]:
    """Returns the raw arrays that a vjp refers to."""
    held: list = []
    for f in vjp if isinstance(vjp, tuple) else (vjp,):
        if f is not None:
            _add_arrays(f, held)
    return held


def _add_arrays(f: object, held: list) -> None:
    """Appends the arrays in the closure of `f`, its defaults, or its arguments if it is a partial."""
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


def extent(x: RawArray) -> tuple[int, int]:
    """Returns the addresses of the first byte of a raw array, and of the one after its last."""
    start = address_of(x)
    if x.flags.c_contiguous:
        return start, start + x.nbytes
    low = high = start
    for size, step in zip(x.shape, x.strides, strict=True):
        if step > 0:
            high += (size - 1) * step
        else:
            low += (size - 1) * step
    return low, high + x.itemsize


def holds(vjp: Vjp, memory: tuple[int, int]) -> bool:
    """Returns whether a vjp refers to an array that overlaps with this range of addresses."""
    low, high = memory
    for held in closure_arrays(vjp):
        if is_raw(held):
            first, end = extent(held)
            if first < high and low < end:
                return True
    return False
