"""What functions do with meta arrays, by their names in instructions: shapes, strides, dtypes and views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ...backends.meta.array import MetaArray
from ...backends.meta.functions import FUNCTIONS, SHAPES, VIEWS, call_function
from ...backends.meta.ufuncs import call_ufunc
from ..tracing.tracing_array import METHODS, PROPERTIES, name_of

# Those that make lists of any length, or repeat something any number of times, are left out.
_UNKNOWN = {"split", "array_split", "hsplit", "vsplit", "dsplit", "diff", "frombuffer", "broadcast_arrays"}
_FUNCTIONS = {name_of(f): f for f in (*SHAPES, *FUNCTIONS, *VIEWS) if name_of(f) not in _UNKNOWN}
OF_ARRAYS = {f".{name.strip('_')}": getattr(MetaArray, name) for name in METHODS}
OF_ARRAYS |= {f".{name}": getattr(MetaArray, name).fget for name in PROPERTIES}
_UFUNC_METHODS = ("__call__", "reduce", "accumulate", "outer", "at")


def rule_of(name: str) -> Callable | None:
    """Returns what a call does with meta arrays; None for a function that no instruction calls."""
    if name in OF_ARRAYS:
        return OF_ARRAYS[name]
    if name in _FUNCTIONS:
        return partial(call_function, _FUNCTIONS[name])
    head, _, method = name.partition(".")
    ufunc, method = getattr(np, head, None), method or "__call__"
    if not isinstance(ufunc, np.ufunc) or method not in _UFUNC_METHODS:
        return None
    return partial(call_ufunc, ufunc, method)
