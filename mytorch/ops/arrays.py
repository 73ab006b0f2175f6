"""Arrays (a `.grad`, a `.data`) as arguments of functions of Tensors; the result is a Tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..core.array import Array
from ..core.overriding import overriding
from ..core.tensor import from_raw


def as_tensors(x: Any) -> Any:
    """Returns an Array as a Tensor on its memory, also in a list or tuple, and anything else as it is."""
    if type(x) is Array:
        return from_raw(x._array)
    if type(x) in (list, tuple) and any([type(item) is Array for item in x]):
        return type(x)([as_tensors(item) for item in x])
    return x


def takes_arrays(function: Callable) -> Callable:
    """Returns a function of Tensors that takes Arrays too, also in a list."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if overriding and (answer := overriding.dispatch(call, args, kwargs)) is not NotImplemented:
            return answer
        try:
            if kwargs:
                kwargs = {name: as_tensors(value) for name, value in kwargs.items()}
            return function(*map(as_tensors, args), **kwargs)
        except Exception as error:
            return overriding.refused(call, args, kwargs, error)

    return call


def make_them_take_arrays(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Makes the functions of these names in a module take Arrays, if they take Tensors; ops do anyway."""
    for name in names:
        function = namespace[name]
        by_itself = hasattr(function, "forward") and not name.endswith("_")
        if isinstance(function, type(takes_arrays)) and not by_itself and _takes_tensors(function):
            namespace[name] = takes_arrays(function)
            namespace[name].__module__ = namespace["__name__"]  # where a pickle finds it


def _takes_tensors(function: Callable) -> bool:
    """Returns False if the annotations of the arguments, where there are any, name no Tensor."""
    kinds = [kind for name, kind in function.__annotations__.items() if name != "return"]
    return not kinds or any(kind == "Any" or "Tensor" in kind for kind in map(str, kinds))
