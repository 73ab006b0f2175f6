"""Tracing arrays: meta arrays that note each call of a NumPy function as an instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...backends.device import thread
from ...backends.door import ReadsItem
from ...backends.meta.array import MetaArray

if TYPE_CHECKING:
    from .tracer import Tracer

METHODS = (
    "__getitem__", "__setitem__", "astype", "reshape", "view", "transpose", "copy", "flatten", "fill", "sort",
    "conj",
)
PROPERTIES = ("T", "mT", "real", "imag")


class TracingArray(ReadsItem, MetaArray):
    """A meta array of a function that is being traced."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"

        def rule(*inputs, **kwargs):
            return MetaArray.__array_ufunc__(self, ufunc, method, *inputs, **kwargs)

        return _tracer().call(name, rule, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        def rule(*args, **kwargs):
            return MetaArray.__array_function__(self, function, types, args, kwargs)

        return _tracer().call(name_of(function), rule, args, kwargs)

    def item(self, *args: Any) -> Any:
        return _tracer().ask(self if not args else self[args if len(args) > 1 else args[0]])

    def __index__(self) -> int:
        return self.item() if self.dtype.kind in "iu" and self.size == 1 else super().__index__()

    def tolist(self) -> Any:
        return self.item() if not self.ndim else _raise_of_elements()

    def __array__(self, dtype=None, copy=None) -> Any:
        return _raise_of_elements()

    __dlpack__ = __dlpack_device__ = __array__


def _tracer() -> Tracer:
    if thread.tracer is None:
        raise RuntimeError("this array is part of a program that was captured, and holds nothing")
    return thread.tracer


def _raise_of_elements() -> Any:
    what = "the elements of an array that Python reads"
    _tracer().break_graph(NotImplementedError(f"a program can't hold {what}"))


def name_of(function: Callable) -> str:
    """Returns the name of a NumPy function below `np`."""
    module = getattr(function, "__module__", "numpy").removeprefix("numpy").lstrip(".")
    return f"{module}.{function.__name__}" if module else function.__name__


def _traced(name: str, rule: Callable) -> Callable:
    def method(self, *args, **kwargs):
        return _tracer().call(name, rule, (self, *args), kwargs)

    return method


for _name in METHODS:
    setattr(TracingArray, _name, _traced("." + _name.strip("_"), getattr(MetaArray, _name)))
for _name in PROPERTIES:
    _property = getattr(MetaArray, _name)
    setattr(TracingArray, _name, property(_traced(f".{_name}", _property.fget), _property.fset))
