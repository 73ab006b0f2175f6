"""Symbolic sizes: what Python computes of the sizes of arrays while a function is traced.

    def last(x):                            %1: float32[16] = .getitem(%0, 15:31)
        n = x.shape[0]                      guard: 31 > 4
        if n > 4:                           symbolic: 15 is sub(floordiv(n, 2), 0), n is dim 0 of %0
            return x[n // 2:]

In a trace of symbolic sizes, the shape of an array holds *sizes*: integers that note Python's arithmetic as
expressions, and comparisons as guards, so that the instructions can be made again for arrays of other sizes
(see `resizing`). The package's own functions get a SizeInt, which is an int for all C code; those of the user
get a SizeNumber, which is none: what reads its exact value (`range(n)`, `table[n]`, `f"{n}"`) can't do so
without a guard that it is the same.
"""

from __future__ import annotations

import builtins
import gc
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.device import is_users, thread
from ...core.array import Array
from ...core.tensor import Tensor
from ...ops import properties
from ...utils.nested import leaves, mapped
from .number import ARITHMETIC, COMPARISONS, OPERATIONS, UNARY, Number, exact_size
from .tracing_array import TracingArray

if TYPE_CHECKING:
    from ..program.instruction import Instruction, Value
    from .tracer import Tracer

_FACTS: dict[str, Callable] = {
    "shape": lambda x: x.shape, "strides": lambda x: x.strides, "size": lambda x: x.size,
    "nbytes": lambda x: x.size * x.dtype.itemsize,
}  # fmt: skip
_OPERATIONS: dict[str, Callable] = {**OPERATIONS, "bit_length": int.bit_length, "int": int, "float": float}
# Functions that return what an array says of itself to their callers, and those that make a plain int of it.
_ACCESSORS: set[CodeType] = {
    Tensor.shape.fget.__code__, properties.numel.__code__, properties.size.__code__,
    properties.stride.__code__,
}  # fmt: skip
_EXACT: set[CodeType] = {Array.size.fget.__code__, Array.__len__.__code__, Tensor.__len__.__code__}


class Expression:
    """A number that a program computes of the sizes of its arrays.

    Attributes:
        name: of an operation, or of a fact about an array: "shape".
        args: numbers and expressions; of a fact the value, and the dim if there are several.
    """

    __slots__ = ("name", "args")

    def __init__(self, name: str, args: tuple):
        self.name, self.args = name, args

    def __str__(self) -> str:
        if self.name not in _FACTS:
            return f"{self.name}({', '.join(map(str, self.args))})"
        return " ".join([f"{self.name} of {self.args[0]!r}", *[f"dim {dim}" for dim in self.args[1:]]])


class Evaluation:
    """The values of expressions, for arrays of other sizes.

    Args:
        values: what stands for values of the trace, with the other sizes.
    """

    def __init__(self, values: Mapping[Value, Any]):
        self._values, self._known = values, {}

    def __call__(self, x: Any) -> Any:
        """Returns the value of an expression, and anything else as it is.

        Raises:
            KeyError: it depends on an array that isn't there.
        """
        if type(x) is not Expression:
            return x
        found = self._known.get(x)
        if found is None:
            if x.name in _FACTS:
                value, *dim = x.args
                found = _FACTS[x.name](self._values[value])
                found = found[dim[0]] if dim else found
            else:
                found = _OPERATIONS[x.name](*map(self, x.args))
            self._known[x] = found
        return found


class Sizes:
    """The sizes of one trace, and what is noted of them.

    Args:
        choices: what the first trace has chosen: see `choice`.

    Attributes:
        expressions: all that were made, with their values, by what they are.
        guards: the answers of comparisons: (answer, name, arguments).
        is_used: whether a trace has used them.
        symbolic: the arguments of instructions, with expressions in the place of what was computed of sizes.
    """

    def __init__(self, choices: list[bool]):
        self._first_choices = choices
        self.forget()

    def forget(self) -> None:
        """Forgets all: another trace begins."""
        self.expressions: dict[tuple, tuple[Expression, Any]] = {}
        self.guards: dict[tuple, tuple[bool, str, tuple]] = {}
        self.symbolic: dict[Instruction, tuple[tuple, dict]] = {}
        self.is_used = False
        self._choices, self._tracer = [*reversed(self._first_choices)], None
        self._made: list[weakref.ref[SizeNumber]] = []

    @contextmanager
    def of(self, tracer: Tracer) -> Iterator[None]:
        """Context of the trace."""
        self._tracer, tracer.kind, self.is_used = tracer, SizedArray, True
        before, builtins.len = builtins.len, self._len
        try:
            yield
        finally:
            builtins.len, self._tracer = before, None

    def _len(self, x: Any) -> Any:
        """What `len` is for the user's functions: that of a tensor is a size."""
        if isinstance(x, (Tensor, Array)) and thread.tracer is self._tracer and _is_strict(sys._getframe(1)):
            shape = x.shape
            if shape and type(shape[0]) is not int:
                return self.user(shape[0])
        return _len(x)

    def escaped(self) -> bool:
        """Returns whether a size of the user's functions outlives the trace, kept in an object that isn't
        watched."""
        if any([reference() is not None for reference in self._made]):
            gc.collect()
        return any([reference() is not None for reference in self._made])

    def choice(self, found: bool) -> bool:
        """Returns which of two ways to compute the same was chosen in the first trace, whatever the sizes."""
        return self._choices.pop() if self._choices else found

    # What is read.

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
        is_strict = _is_strict(frame)
        dims = [(d,) for d in range(len(plain))] if isinstance(plain, tuple) else [()]
        each = plain if isinstance(plain, tuple) else (plain,)
        pairs = zip(each, dims, strict=True)
        found = [(n, self._expression(name, (value, *dim), n)) for n, dim in pairs]
        if is_exact and is_strict:
            for n, expression in found:
                self._expect(expression, n)
            return plain
        made = [self._users(n, e) if is_strict else SizeInt.of(n, e, self) for n, e in found]
        return _Each(made) if isinstance(plain, tuple) else made[0]

    def user(self, x: Any) -> SizeNumber:
        """Returns a size as the user's functions get it."""
        return x if type(x) is SizeNumber else self._users(exact(x), expression_of(x))

    def _users(self, x: Any, expression: Expression) -> SizeNumber:
        made = SizeNumber(x, expression, frozenset(), self)
        self._made.append(weakref.ref(made))
        return made

    def _expression(self, name: str, args: tuple, result: Any) -> Expression:
        key = name, *[x if isinstance(x, Expression) or not isinstance(x, (int, float, np.generic))
                      else (type(x), repr(x)) for x in args]  # fmt: skip
        found = self.expressions.get(key)
        if found is None:
            found = self.expressions[key] = Expression(name, args), result
        return found[0]

    # What is computed.

    def operation(self, name: str, args: tuple) -> Any:
        """Returns the size, or the number, that an operation gives for sizes and numbers."""
        if any([type(x) is Number for x in args]):  # an input: beside it sizes are constants
            return _OPERATIONS[name](*[exact_size(x) for x in args])
        result = _OPERATIONS[name](*map(exact, args))
        if self._tracer is None:
            return result
        if not isinstance(result, (int, float, np.generic)):
            self.pin(args)
            return result
        expression = self._expression(name, tuple(map(expression_of, args)), result)
        if any([type(x) is SizeNumber for x in args]):
            return self._users(result, expression)
        made = SizeInt if type(result) is int else SizeFloat if type(result) is float else None
        return result if made is None else made.of(result, expression, self)

    def outcome(self, name: str, args: tuple) -> bool:
        """Returns the answer of a comparison, which becomes a guard."""
        if any([type(x) is Number for x in args]):
            return _OPERATIONS[name](*[exact_size(x) for x in args])
        answer = bool(_OPERATIONS[name](*map(exact, args)))
        if self._tracer is not None and not self._tracer.is_inside:
            args = tuple(map(expression_of, args))
            key = name, *[x if isinstance(x, Expression) else (type(x), repr(x)) for x in args]
            self.guards[key] = answer, name, args
        return answer

    def _expect(self, expression: Expression, value: Any) -> None:
        """Guards that an expression has this value."""
        self.guards["eq", expression] = True, "eq", (expression, value)

    def pin(self, args: tuple) -> Any:
        """Returns the exact value of the first size; guards that all are the same."""
        for x in args if self._tracer is not None else ():
            if type(expression_of(x)) is Expression:
                self._expect(expression_of(x), exact(x))
        return exact(args[0])

    def array(self, x: SizeNumber, dtype: np.dtype) -> np.ndarray:
        """Returns an array without dims that holds a size."""
        return np.asarray(self.pin((x,)), dtype)

    # What is noted.

    def note(self, instruction: Instruction, args: tuple, kwargs: dict) -> None:
        """Notes the arguments of an instruction, which hold sizes."""
        self.symbolic[instruction] = mapped(expression_of, args), mapped(expression_of, kwargs)


class _Each(tuple):
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


for _name in _FACTS:
    setattr(SizedArray, _name, _fact(_name))
_len = len


def _is_strict(frame: FrameType) -> bool:
    """Returns whether a function is the user's, or a model's, which may do anything with a size."""
    return is_users(frame) or str(frame.f_globals.get("__name__")).startswith("mytorch.models")


def _reader(frame: FrameType) -> FrameType:
    """Returns the function that has called NumPy's, or itself."""
    while str(frame.f_globals.get("__name__")).partition(".")[0] == "numpy" and frame.f_back is not None:
        frame = frame.f_back
    return frame


class _Noting:
    """The methods of a size that is an int or a float for all C code."""

    @classmethod
    def of(cls, x: Any, expression: Expression, sizes: Sizes) -> Any:
        made = cls(x)
        made.expression, made.sizes = expression, sizes
        return made

    def __bool__(self) -> bool:
        return self.sizes.outcome("bool", (self,))

    def __round__(self, *ndigits: int) -> Any:
        return self.sizes.operation("round", (self, *ndigits))

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __reduce__(self) -> tuple:
        return type(exact(self)), (exact(self),)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        return self

    def pinned(self) -> Any:
        return self.sizes.pin((self,))

    def as_size(self) -> Any:
        return self

    def bit_length(self) -> Any:
        return self.sizes.operation("bit_length", (self,))

    def is_integer(self) -> bool:
        return self % 1 == 0


class SizeInt(_Noting, int):
    """A size for the package's own functions.

    Attributes:
        expression: what it is of the sizes of the arguments.
        sizes: notes what is done with it.
    """

    __class__ = property(lambda self: int)
    __hash__ = int.__hash__


class SizeFloat(_Noting, float):
    """A number that the package's own functions have computed of sizes."""

    __class__ = property(lambda self: float)
    __hash__ = float.__hash__

    def __int__(self) -> int:
        made = self.sizes.operation("int", (self,))
        return exact(made)

    __trunc__ = __int__


class SizeNumber(Number):
    """A size, or what was computed of sizes, for the functions of the user."""

    __slots__ = ()

    def __index__(self) -> int:
        return self._read(operator.index)

    def __int__(self) -> int:
        return self._read(int)

    def __float__(self) -> float:
        return self._read(float)

    def as_size(self) -> SizeInt:
        """Returns the size for the package's own functions."""
        return SizeInt.of(operator.index(self.example), self.value, self._numbers)

    def __repr__(self) -> str:
        return self._read(repr)

    def __str__(self) -> str:
        return self._read(str)

    def __format__(self, spec: str) -> str:
        return self._read(lambda x: format(x, spec))

    def _read(self, kind: Callable) -> Any:
        """Returns what the exact value gives; for the user's functions with a guard that it is the same."""
        is_strict = _is_strict(_reader(sys._getframe(2)))
        return kind(self.pinned() if is_strict else self.example)


def _is_number(x: object) -> bool:
    return type(x) in (int, float, bool, SizeInt, SizeFloat)


def _binary(name: str, is_reflected: bool = False) -> Callable:
    def method(self, other):
        if not _is_number(other):
            return NotImplemented
        return self.sizes.operation(name, (other, self) if is_reflected else (self, other))

    return method


def _comparison(name: str) -> Callable:
    def method(self, other):
        return self.sizes.outcome(name, (self, other)) if _is_number(other) else NotImplemented

    return method


for _name in ARITHMETIC:
    setattr(_Noting, f"__{_name}__", _binary(_name))
    setattr(_Noting, f"__r{_name}__", _binary(_name, is_reflected=True))
for _name in COMPARISONS:
    setattr(_Noting, f"__{_name}__", _comparison(_name))
for _name in UNARY.keys() - {"round", "trunc"}:
    setattr(_Noting, f"__{_name}__", lambda self, name=_name: self.sizes.operation(name, (self,)))


def exact(x: Any) -> Any:
    """Returns the number that a size is in this trace, and anything else as it is."""
    kind = type(x)
    if kind is SizeInt:
        return int.__index__(x)
    if kind is SizeFloat:
        return float.__pos__(x)
    return x.example if kind is SizeNumber else x


def expression_of(x: Any) -> Any:
    """Returns the expression of a size, and anything else as it is."""
    kind = type(x)
    return x.expression if kind is SizeInt or kind is SizeFloat else x.value if kind is SizeNumber else x


def have_sizes(x: object) -> bool:
    """Returns whether nested arguments hold a size."""
    return any([type(leaf) in (SizeInt, SizeFloat, SizeNumber) for leaf in leaves(x)])
