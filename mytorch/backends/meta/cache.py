"""A rule runs once for arguments that are alike: what it makes is kept.

A rule is a function of meta arrays. It runs on arrays of the layouts of its arguments, each in memory of its
own, so that nothing but the key (the rule, the layouts, the other arguments) can decide on its result. Kept
is how to make the result of other arrays of these layouts: new arrays, views of arguments, arguments
themselves. Errors are not kept, and neither are calls with arguments that have elements, or that are of
classes that this file doesn't know. Of equal calls only the first gives NumPy's warnings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import MetaArray, new_of, view
from .layout import Layout
from .storage import memory

MOST = 1 << 13  # calls that are kept
LONGEST = 256  # of their keys: an index may be a list of any length
_known: dict[tuple, Layout | Callable[[list[MetaArray]], Any]] = {}  # a layout for a new array
_KEYWORDS = object()  # what lies between arguments and keyword arguments in a key

_FLOATS = {float, complex} | {np.dtype(code).type for code in np.typecodes["AllFloat"]}
_NUMBERS = {int, np.bool_} | {np.dtype(code).type for code in np.typecodes["AllInteger"]} | _FLOATS
_PLAIN = {bool, str, type(None), type(...)}
_CONSTANT = {bool, int, str, type(None), type, np.dtype}


def call(rule: Callable, args: tuple, kwargs: dict, by_value: bool = True) -> Any:
    """Returns `rule(*args, **kwargs)`.

    Args:
        by_value: the values of floating-point numbers among `args` may decide on the result; else only their
            types do.
    """
    key, arrays = [rule], []
    for x in args:
        if not _add(x, key, arrays, by_value):
            return rule(*args, **kwargs)
    if kwargs:
        key.append(_KEYWORDS)
        for name, x in kwargs.items():
            key.append(name)
            if not _add(x, key, arrays, True):
                return rule(*args, **kwargs)
    found = _known.get(kept := tuple(key))
    if found is None:
        return _first(kept, arrays, rule, args, kwargs)
    return new_of(found) if type(found) is Layout else found(arrays)


def cached(rule: Callable) -> Callable:
    """Returns a function whose calls are kept."""
    return lambda *args, **kwargs: call(rule, args, kwargs)


def _add(x: object, key: list, arrays: list[MetaArray], by_value: bool) -> bool:
    """Adds an argument to a key, and its arrays to a list; returns False if it can't be in a key.

    What is added is a layout, or of one of the types in `_PLAIN`, or begins with its type: no two arguments
    that differ are added alike.
    """
    kind = type(x)
    if kind is MetaArray:
        key.append(x.layout)
        arrays.append(x)
    elif kind in _PLAIN:
        key.append(x)
    elif kind in _NUMBERS:
        key.append(kind)
        if by_value or kind not in _FLOATS:
            key.append(x)
    elif kind is tuple or kind is list:
        key += (kind, len(x))
        return all([_add(item, key, arrays, by_value) for item in x])
    elif kind is slice:
        key.append(kind)
        return all([_add(item, key, arrays, by_value) for item in (x.start, x.stop, x.step)])
    elif isinstance(x, MetaArray):
        key.append(x.layout)
        arrays.append(x)
    elif kind is type:
        key += (kind, x)
    elif isinstance(x, np.dtype):
        key += (np.dtype, id(x), x)  # equal dtypes may differ, as "l" and "q"; x keeps its id its own
    else:
        return False
    return True


def _first(key: tuple, arrays: list[MetaArray], rule: Callable, args: tuple, kwargs: dict) -> Any:
    """Runs the rule, and keeps what it makes."""
    if len(key) > LONGEST:
        return rule(*args, **kwargs)
    given: list[MetaArray] = []
    peak = memory.peak
    try:
        result = rule(*_replaced(args, given), **{name: _replaced(x, given) for name, x in kwargs.items()})
        found = _recipe(result, given)
    except Exception:  # the rule raises its error for the arguments themselves, or can use their elements
        found = None
    given, result = [], None
    memory.peak = peak  # the arrays until here stand for others
    if found is None:
        return rule(*args, **kwargs)
    if len(_known) >= MOST:
        _known.clear()
    _known[key] = found
    return new_of(found) if type(found) is Layout else found(arrays)


def _replaced(x: Any, given: list[MetaArray]) -> Any:
    """Returns an argument with new arrays in place of its arrays, which are added to a list."""
    if isinstance(x, MetaArray):
        given.append(new_of(x.layout))
        return given[-1]
    if type(x) is slice:
        return slice(*[_replaced(item, given) for item in (x.start, x.stop, x.step)])
    return type(x)([_replaced(item, given) for item in x]) if type(x) in (tuple, list) else x


def _recipe(result: Any, given: list[MetaArray]) -> Layout | Callable[[list[MetaArray]], Any] | None:
    """Returns a layout, or a function that makes such a result of other arrays; None if there is none."""
    if isinstance(result, MetaArray):
        return _array_recipe(result, given)
    if isinstance(result, (tuple, list)):
        parts = [_recipe(x, given) for x in result]
        if None in parts:
            return None
        make = getattr(result, "_make", type(result))
        return lambda arrays: make([new_of(x) if type(x) is Layout else x(arrays) for x in parts])
    return (lambda arrays: result) if type(result) in _CONSTANT or isinstance(result, np.dtype) else None


def _array_recipe(result: MetaArray, given: list[MetaArray]) -> Layout | Callable | None:
    layout, offset = result.layout, result.offset
    for k, x in enumerate(given):
        if result is x:
            return lambda arrays: arrays[k]
        if result.storage is x.storage:
            return lambda arrays: view(arrays[k], layout, offset)
    return layout if result.base is None else None
