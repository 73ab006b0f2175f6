"""Expressions: what Python has computed of the sizes of arrays, to be computed again for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .number import OPERATIONS

if TYPE_CHECKING:
    from ..program.instruction import Value

FACTS: dict[str, Callable] = {
    "shape": lambda x: x.shape, "strides": lambda x: x.strides, "size": lambda x: x.size,
    "nbytes": lambda x: x.size * x.dtype.itemsize,
}
SIZE_OPERATIONS: dict[str, Callable] = {**OPERATIONS, "bit_length": int.bit_length, "int": int}


class NotSymbolic(Exception):
    """Raised where a size can't be another one; says why."""


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
        if self.name not in FACTS:
            return f"{self.name}({', '.join(map(str, self.args))})"
        return " ".join([f"{self.name} of {self.args[0]!r}", *[f"dim {dim}" for dim in self.args[1:]]])


class Evaluation:
    """The values of expressions, for arrays of other sizes.

    Args:
        values: what stands for values of the trace, with the other sizes.
    """

    def __init__(self, values: Mapping[Value, Value]):
        self._values, self._known = values, {}

    def __call__(self, x: Any) -> Any:
        """Returns the value of an expression, and anything else as it is.

        Raises:
            NotSymbolic: it depends on an array that isn't there, or has no value for these sizes, as 1 / 0.
        """
        if type(x) is not Expression:
            return x
        if x not in self._known:
            try:
                self._known[x] = self._value(x)
            except (ArithmeticError, KeyError, ValueError) as error:
                raise NotSymbolic(f"{x}: {type(error).__name__}: {error}") from error
        return self._known[x]

    def _value(self, x: Expression) -> Any:
        if x.name not in FACTS:
            return SIZE_OPERATIONS[x.name](*map(self, x.args))
        value, *dim = x.args
        fact = FACTS[x.name](self._values[value])
        return fact[dim[0]] if dim else fact


class Lost:
    """An argument of an instruction that C code has made of a size, of which it isn't known.

    Args:
        kind: of the argument.
        candidates: the expressions that it may be made of.
    """

    def __init__(self, kind: type, candidates: Sequence[Expression]):
        self._kind, self._candidates = kind, candidates

    def value(self, evaluation: Evaluation) -> Any:
        """Returns the argument for other sizes.

        Raises:
            NotSymbolic: it isn't certain.
        """
        first, *others = [self._kind(evaluation(x)) for x in self._candidates]
        if not all([same(x, first) for x in others]):
            raise NotSymbolic(f"it isn't known whether a size is {' or '.join(map(str, (first, *others)))}")
        return first


class LostText:
    """A text with such arguments in it.

    Args:
        parts: texts, and what was lost between them.
    """

    def __init__(self, parts: Sequence[str | Lost]):
        self._parts = parts

    def value(self, evaluation: Evaluation) -> str:
        """Returns the text for other sizes."""
        return "".join([str(x.value(evaluation)) if isinstance(x, Lost) else x for x in self._parts])


def same(x: Any, y: Any) -> bool:
    """Returns whether two arguments are equal, and of one type."""
    if type(x) is not type(y):
        return False
    if isinstance(x, (float, np.floating)):
        return repr(x) == repr(y)
    return x is y or bool(x == y)
