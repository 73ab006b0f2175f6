"""Tracing arrays: meta arrays that note each call of a NumPy function as an instruction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...backends.device import META, RawArray, device, thread
from ...backends.meta.array import MetaArray, new_of
from ...backends.meta.creation import module
from ...backends.meta.layout import layout
from ...core import op
from ...core.array import Array
from ...core.tensor import Tensor
from .program import Instruction, Value, leaves, mapped

_METHODS = (
    "__getitem__", "__setitem__", "astype", "reshape", "view", "transpose", "copy", "flatten", "fill", "sort",
    "conj",
)  # fmt: skip
_PROPERTIES = ("T", "mT", "real", "imag")
_WRITERS = {
    ".setitem", ".fill", ".sort", "copyto", "put_along_axis", "put", "fill_diagonal", "add.at",
    "subtract.at", "multiply.at", "maximum.at", "minimum.at",
}  # fmt: skip


class TracingArray(MetaArray):
    """A meta array of a program that is being captured."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"

        def rule(*inputs, **kwargs):
            return MetaArray.__array_ufunc__(self, ufunc, method, *inputs, **kwargs)

        return current.tracer.call(name, rule, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        def rule(*args, **kwargs):
            return MetaArray.__array_function__(self, function, types, args, kwargs)

        return current.tracer.call(name_of(function), rule, args, kwargs)


def name_of(function: Callable) -> str:
    """Returns the name of a NumPy function below `np`."""
    module = getattr(function, "__module__", "numpy").removeprefix("numpy").lstrip(".")
    return f"{module}.{function.__name__}" if module else function.__name__


def _traced(name: str, rule: Callable) -> Callable:
    def method(self, *args, **kwargs):
        return current.tracer.call(name, rule, (self, *args), kwargs)

    return method


for _name in _METHODS:
    setattr(TracingArray, _name, _traced("." + _name.strip("_"), getattr(MetaArray, _name)))
for _name in _PROPERTIES:
    _property = getattr(MetaArray, _name)
    setattr(TracingArray, _name, property(_traced(f".{_name}", _property.fget), _property.fset))


class Tracer:
    """Notes the instructions of a function that runs on tracing arrays.

    Attributes:
        instructions: so far.
        state: the arrays of tensors that are no arguments, by the values that stand for them.
        constants: other arrays with elements that instructions take.
    """

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.state: dict[Value, RawArray] = {}
        self.constants: dict[Value, RawArray] = {}
        self._values: dict[int, tuple[Value, MetaArray]] = {}  # by the id of the array, which stays alive
        self._lifted: dict[int, tuple[RawArray, MetaArray]] = {}  # by the id of the array with elements
        self._storages: dict[int, Value] = {}  # the first value in each storage
        self._is_inside = False
        self._replaced: list[tuple[Array, RawArray]] = []

    def new(self, x: MetaArray) -> Value:
        """Returns a new value for an array."""
        x.__class__ = TracingArray
        of = self._storages.get(id(x.storage))
        value = Value(len(self._values), x.shape, x.strides, x.dtype, of)
        self._storages.setdefault(id(x.storage), value)
        self._values[id(x)] = value, x
        return value

    def value(self, x: MetaArray) -> Value:
        """Returns the value of an array.

        Raises:
            NotImplementedError: no instruction made it, as random numbers.
        """
        found = self._values.get(id(x))
        if found is None:
            raise NotImplementedError(
                f"a program can't hold an array of shape {x.shape} that no instruction made: random numbers"
            )
        return found[0]

    def lift(self, raw: RawArray, owner: Tensor | None = None) -> MetaArray:
        """Returns the array that stands for one with elements; until the end the owner holds it.

        Raises:
            NotImplementedError: the memory is part of other state.
        """
        if isinstance(raw, MetaArray):
            return raw
        found = self._lifted.get(id(raw))
        if found is None:
            x = new_of(layout(raw.shape, raw.strides, raw.dtype))
            value = self.new(x)
            if owner is None:
                self.constants[value] = raw
            else:
                for other in self.state.values():
                    if np.may_share_memory(raw, other):
                        raise NotImplementedError(
                            f"a program can't have two tensors of the same memory, of shapes {raw.shape} and "
                            f"{other.shape}, as its state"
                        )
                self.state[value] = raw
            found = self._lifted[id(raw)] = raw, x
        if owner is not None:
            self._replaced.append((owner._data, raw))
            owner._data._array = found[1]
        return found[1]

    def constant(self, raw: RawArray) -> MetaArray:
        """Returns a new array with these elements."""
        return self.lift(raw.copy()).copy()

    def restore(self) -> None:
        """Gives the tensors back their arrays."""
        for array, raw in self._replaced:
            array._array = raw

    def call(self, name: str, rule: Callable, args: tuple, kwargs: dict) -> Any:
        """Runs a rule of meta arrays, and notes the call."""
        if self._is_inside:
            return rule(*args, **kwargs)
        args, kwargs = mapped(self._lifted_leaf, args), mapped(self._lifted_leaf, kwargs)
        self._is_inside = True
        try:
            result = rule(*args, **kwargs)
        finally:
            self._is_inside = False
        given = [self.value(x).storage for x in leaves((args, kwargs)) if isinstance(x, MetaArray)]
        outs = [x for x in leaves(kwargs.get("out")) if isinstance(x, MetaArray)]
        written = [self.value(x).storage for x in outs] + (given[:1] if name in _WRITERS else [])
        made = [x for x in leaves(result) if isinstance(x, MetaArray) and id(x) not in self._values]
        arguments = mapped(self._value_leaf, args), mapped(self._value_leaf, kwargs)
        outputs = tuple([self.new(x) for x in made])
        if outputs or written:
            self.instructions.append(Instruction(name, *arguments, outputs, tuple(written)))
        return result

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Context in which nothing is noted: the inside of an instruction."""
        before, self._is_inside = self._is_inside, True
        try:
            yield
        finally:
            self._is_inside = before

    def note_kernel(
        self, name: str, args: tuple, results: Sequence[MetaArray], wanted: dict | None = None
    ) -> tuple[list[MetaArray], Value]:
        """Notes a call of a kernel; returns its results, and the value that stands for what it saves."""
        given = mapped(lambda x: self._value_leaf(self._lifted_leaf(x)), args)
        made = [x if id(x) not in self._values else x.copy() for x in results]
        outputs = [self.new(x) for x in made]
        saved = Value(len(self._values), (), (), np.dtype(object))
        self._values[-len(self._values)] = saved, None
        if wanted is None:
            outputs.append(saved)
        kwargs = {} if wanted is None else {"wanted": wanted}
        self.instructions.append(Instruction(name, given, kwargs, tuple(outputs)))
        return made, saved

    def made_by(self, name: str, function: Callable) -> Callable:
        """Returns a function that makes an array, which notes its calls."""
        return lambda *args, **kwargs: self.call(name, function, args, kwargs)

    def _lifted_leaf(self, x: Any) -> Any:
        return self.lift(x) if isinstance(x, np.ndarray) else x

    def _value_leaf(self, x: Any) -> Any:
        return self.value(x) if isinstance(x, MetaArray) else x

    def unwrap(self, args: Sequence[Any]) -> tuple[list, device] | None:
        """Returns what `core.op.unwrap` does, with tracing arrays in place of those with elements; None if
        there are no arrays, and in other threads."""
        if current.tracer is not self:
            return None
        raws, found = [], False
        for a in args:
            owner = a if isinstance(a, Tensor) else None
            raw = a._data._array if owner is not None else a._array if isinstance(a, Array) else a
            if isinstance(raw, np.ndarray):
                raw = self.lift(raw, owner)
            found = found or isinstance(raw, MetaArray)
            raws.append(raw)
        return (raws, META) if found else None


class _Current(threading.local):
    tracer: Tracer | None = None


current = _Current()


@contextmanager
def tracing() -> Iterator[Tracer]:
    """Context in which this thread's calls are noted; its value is the tracer."""
    if current.tracer is not None:
        raise RuntimeError("a program is being captured already")
    tracer = current.tracer = Tracer()
    op.lifting.append(tracer.unwrap)
    thread.is_tracing, module.note, module.constant = True, tracer.made_by, tracer.constant
    try:
        yield tracer
    finally:
        thread.is_tracing, module.note = False, None
        tracer.restore()
        op.lifting.remove(tracer.unwrap)
        current.tracer = None
