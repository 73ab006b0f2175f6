"""Symbolic sizes: what a trace notes of the sizes of arrays.

    def last(x):                 %1: float32[16, 8] = .getitem(%0, (15:,))
        n = x.shape[0]           15 is floordiv(shape of %0 dim 0, 2)
        if n > 4:                a guard: shape of %0 dim 0 > 4
            return x[n // 2 :]

In a trace of symbolic sizes, the shape of an array holds *sizes*: integers that note Python's arithmetic as
expressions, and comparisons as guards, so that the instructions can be made again for arrays of other sizes
(see `resizing`).
"""

from __future__ import annotations

import builtins
import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import thread
from ...core.array import Array
from ...core.tensor import Tensor
from ...ops import properties
from ...utils.nested import mapped
from .expressions import FACTS, SIZE_OPERATIONS, Expression
from .number import Number, exact_size
from .size import SizeFloat, SizeInt, SizeNumber, exact, expression_of, is_strict
from .tracing_array import TracingArray

if TYPE_CHECKING:
    from ..program.instruction import Instruction
    from .tracer import Tracer

# Functions that return what an array says of itself to their callers, and those that make a plain int of it.
_ACCESSORS: set[CodeType] = {
    Tensor.shape.fget.__code__, properties.numel.__code__, properties.size.__code__,
    properties.stride.__code__,
}
_EXACT: set[CodeType] = {Array.size.fget.__code__, Array.__len__.__code__, Tensor.__len__.__code__}
_len = len


class Sizes:
    """The sizes of one trace, and what is noted of them.

    Args:
        choices: what an earlier trace has chosen: see `Tracer.choose`.

    Attributes:
        expressions: all that were made, with their values, by what they are.
        guards: the answers of comparisons: (answer, name, arguments).
        symbolic: the arguments of instructions, with expressions in the place of what was computed of sizes.
        is_used: whether a trace has used them.
        error: one that an instruction has raised, and the function caught.
    """

    def __init__(self, choices: list[bool]):
        self._first_choices = choices
        self.forget()

    def forget(self) -> None:
        """Forgets all: another trace begins."""
        self.expressions: dict[tuple, tuple[Expression, Any]] = {}
        self.guards: dict[tuple, tuple[bool, str, tuple]] = {}
        self.symbolic: dict[Instruction, tuple[tuple, dict]] = {}
        self.is_used, self.error = False, None
        self._choices, self._tracer = [*reversed(self._first_choices)], None
        self._made: list[weakref.ref[SizeNumber]] = []

    @contextmanager
    def of(self, tracer: Tracer) -> Iterator[None]:
        """Context of the trace."""
        self._tracer, tracer.kind, self.is_used = tracer, SizedArray, True
        before, builtins.len = builtins.len, self._length
        try:
            yield
        finally:
            builtins.len, self._tracer = before, None

    def _length(self, x: Any) -> Any:
        """What `len` is meanwhile: for the user's functions that of a tensor is a size."""
        if isinstance(x, (Tensor, Array)) and thread.tracer is self._tracer and is_strict(sys._getframe(1)):
            shape = x.shape
            if shape and type(shape[0]) is not int:
                return self._users(exact(shape[0]), expression_of(shape[0]))
        return _len(x)

    def escaped(self) -> bool:
        """Returns whether a size of the user's functions outlives the trace, kept in an object that isn't
        watched."""
        if any([reference() is not None for reference in self._made]):
            gc.collect()
        return any([reference() is not None for reference in self._made])

    def choice(self, found: bool) -> bool:
        """Returns which of two ways to compute the same the earlier trace has chosen."""
        return self._choices.pop() if self._choices else found

    def read(self, x: SizedArray, name: str, frame: FrameType, is_exact: bool = False) -> Any:
        """Returns a fact about an array.

        Args:
            frame: of the function that asks for it.
            is_exact: whether C code makes plain integers of it.
        """
        plain = getattr(x.layout, name)
        value = self._tracer.value_of(x)
        if value is None:
            return plain
        while frame.f_code in _ACCESSORS or frame.f_code in _EXACT:
            is_exact = is_exact or frame.f_code in _EXACT
            frame = frame.f_back
        is_many = isinstance(plain, tuple)
        keys = [(value, d) for d in range(_len(plain))] if is_many else [(value,)]
        pairs = zip(plain if is_many else (plain,), keys, strict=True)
        found = [(n, self._expression(name, key, n)) for n, key in pairs]
        if not is_strict(frame):
            made = [SizeInt.of(n, expression, self) for n, expression in found]
        elif is_exact:
            made = [self._expect(expression, n) for n, expression in found]
        else:
            made = [self._users(n, expression) for n, expression in found]
        return _Shape(made) if is_many else made[0]

    def _users(self, x: Any, expression: Expression) -> SizeNumber:
        made = SizeNumber(x, expression, frozenset(), self)
        self._made.append(weakref.ref(made))
        return made

    def _expression(self, name: str, args: tuple, result: Any) -> Expression:
        found = self.expressions.get(key := (name, *map(_identity, args)))
        if found is None:
            found = self.expressions[key] = Expression(name, args), result
        return found[0]

    def operation(self, name: str, args: tuple) -> Any:
        """Returns the size, or the number, that an operation gives for sizes and numbers."""
        if any([type(x) is Number for x in args]):  # an input: beside it sizes are constants
            return SIZE_OPERATIONS[name](*map(exact_size, args))
        result = SIZE_OPERATIONS[name](*map(exact, args))
        if self._tracer is None:
            return result
        if not isinstance(result, (int, float, np.generic)):
            self.pin(args)
            return result
        expression = self._expression(name, tuple(map(expression_of, args)), result)
        if any([type(x) is SizeNumber for x in args]):
            return self._users(result, expression)
        kind = {int: SizeInt, float: SizeFloat}.get(type(result))
        return result if kind is None else kind.of(result, expression, self)

    def outcome(self, name: str, args: tuple) -> bool:
        """Returns the answer of a comparison, which becomes a guard."""
        if any([type(x) is Number for x in args]):
            return SIZE_OPERATIONS[name](*map(exact_size, args))
        answer = bool(SIZE_OPERATIONS[name](*map(exact, args)))
        if self._tracer is not None and not self._tracer.is_inside:
            args = tuple(map(expression_of, args))
            self.guards[(name, *map(_identity, args))] = answer, name, args
        return answer

    def _expect(self, expression: Expression, value: Any) -> Any:
        """Returns a value, which becomes the only one that an expression may have."""
        self.guards["eq", expression] = True, "eq", (expression, value)
        return value

    def pin(self, args: tuple) -> Any:
        """Returns the exact value of the first size; guards that all are the same."""
        for x in args if self._tracer is not None else ():
            if type(expression_of(x)) is Expression:
                self._expect(expression_of(x), exact(x))
        return exact(args[0])

    def array(self, x: SizeNumber, dtype: np.dtype) -> np.ndarray:
        """Returns an array without dims that holds a size."""
        return np.asarray(self.pin((x,)), dtype)

    def note(self, instruction: Instruction, args: tuple, kwargs: dict) -> None:
        """Notes the arguments of an instruction, which hold sizes."""
        self.symbolic[instruction] = mapped(expression_of, args), mapped(expression_of, kwargs)


def _identity(x: Any) -> Any:
    return (type(x), repr(x)) if isinstance(x, (int, float, np.generic)) else x


class _Shape(tuple):
    """The sizes of an array. Shapes of other numbers of dims differ, whatever their sizes."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and _len(self) == _len(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class SizedArray(TracingArray):
    """A tracing array whose shape holds sizes."""

    __slots__ = ()

    def __len__(self) -> int:
        if not self.ndim or not _is_read():
            return super().__len__()
        return exact(thread.tracer.sizes.read(self, "shape", sys._getframe(1), is_exact=True)[0])


def _is_read() -> bool:
    tracer = thread.tracer
    return tracer is not None and tracer.sizes is not None and not tracer.is_inside


def _fact(name: str) -> property:
    def fact(self):
        if not _is_read():
            return getattr(self.layout, name)
        return thread.tracer.sizes.read(self, name, sys._getframe(1))

    return property(fact)


for _name in FACTS:
    setattr(SizedArray, _name, _fact(_name))
