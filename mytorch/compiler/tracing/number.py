"""Number: what stands for a Python number while a function is traced, and what programs do with numbers."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.dtypes import as_dtype
from ...backends.meta.array import MetaArray
from ...core.op import cast
from ...ops.elementwise.operands import factor
from ...ops.scalars import as_number
from ...utils.nested import mapped

if TYPE_CHECKING:
    from ..guards.places import Place
    from ..program.instruction import Value
    from .numbers import Numbers

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
UNARY = {"neg": operator.neg, "pos": operator.pos, "abs": abs, "round": round, "floor": math.floor,
          "ceil": math.ceil, "trunc": math.trunc}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
# Not of `dir(np)`, which also names modules that are loaded at their first use, as f2py and testing.
UFUNCS = {name: x for name, x in vars(np).items() if isinstance(x, np.ufunc)}
# What programs do with numbers.
OPERATIONS: dict[str, Callable] = {
    **{f"np.{name}": ufunc for name, ufunc in UFUNCS.items()},
    **{name: getattr(operator, name) for name in (*ARITHMETIC, *COMPARISONS)}, **UNARY,
    "bool": bool,
    "is_a": lambda x, kind: type(x).__name__ == kind,
    "item": lambda x: x.item(),
    "astype": lambda x, dtype: x.astype(as_dtype(dtype)),
    "cast": lambda x, dtype: cast(x, as_dtype(dtype)),
    "as_number": lambda x, dtype, name: as_number(x, as_dtype(dtype), name),
    "factor": lambda x, dtype, *names: factor(x, as_dtype(dtype), *names),
}
OPERANDS = (int, float, complex, np.generic)
_LAYOUT = ("dtype", "ndim", "shape", "size", "itemsize", "nbytes")  # of NumPy's numbers, whatever their value


class Number:
    """What stands for a Python number, or one of NumPy, while a function is traced.

    For `isinstance` it is a float or an int, as the number; but it is none, so that no C code reads a value
    from it without asking.

    Attributes:
        example: the number.
        value: what stands for it in the program.
        roots: the positions or places of the inputs that it depends on.
    """

    __slots__ = ("example", "value", "roots", "_numbers", "__weakref__")

    def __init__(self, example: Any, value: Value, roots: frozenset[int | Place], numbers: Numbers):
        self.example, self.value, self.roots, self._numbers = example, value, roots, numbers

    @property
    def __class__(self) -> type:
        return type(self.example)

    def noted(self, name: str, *args: object) -> Any:
        """Returns the number that an operation in OPERATIONS gives for this one and the arguments."""
        return self._numbers.operation(name, (self, *args))

    def pinned(self) -> Any:
        """Returns the exact value, which makes the numbers that it depends on constants."""
        return self._numbers.pin((self,))

    def as_array(self, dtype: np.dtype) -> MetaArray | np.ndarray:
        """Returns an array without dims that holds the number, which mustn't be written to."""
        return self._numbers.array(self, dtype)

    def __bool__(self) -> bool:
        return self._numbers.outcome("bool", (self,))

    def __round__(self, ndigits: int | None = None) -> Any:
        return self.noted("round") if ndigits is None else self.noted("round", ndigits)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __int__(self) -> int:
        return int(self.pinned())

    def __float__(self) -> float:
        return float(self.pinned())

    def __complex__(self) -> complex:
        return complex(self.pinned())

    def __index__(self) -> int:
        return operator.index(self.pinned())

    def __hash__(self) -> int:
        return hash(self.pinned())

    def __repr__(self) -> str:
        return repr(self.pinned())

    def __str__(self) -> str:
        return str(self.pinned())

    def __format__(self, spec: str) -> str:
        return format(self.pinned(), spec)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: dict) -> Number:
        return self

    def __reduce__(self) -> tuple:
        return type(self.example), (self.pinned(),)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.example, name)
        if name in ("item", "astype"):
            return functools.partial(self.noted, name)
        if callable(found):
            return lambda *args, **kwargs: getattr(self.pinned(), name)(*args, **kwargs)
        return found if name in _LAYOUT else getattr(self.pinned(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.pinned(), dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if not all([isinstance(x, (*OPERANDS, np.ndarray, list, tuple)) for x in inputs]):
            return NotImplemented  # the call of an array that is traced
        name = f"np.{ufunc.__name__}"
        is_plain = method == "__call__" and not kwargs and name in OPERATIONS
        if is_plain and all([isinstance(x, OPERANDS) for x in inputs]):
            return self._numbers.operation(name, inputs)
        inputs, kwargs = mapped(lambda x: exact_size(pinned(x)), (inputs, kwargs))
        return getattr(ufunc, method)(*inputs, **kwargs)


def note_operators(
    kind: type, notes: Callable[[Any], Any], is_operand: Callable[[object], bool], unary: Collection[str]
) -> None:
    """Makes operators of a class: what `notes` returns for an object gets their operations and comparisons.

    Args:
        is_operand: whether a value can be on the other side.
        unary: those of UNARY that the class gets.
    """

    def method_of(name: str, is_comparison: bool = False, is_reflected: bool = False) -> Callable:
        def method(self, other):
            if not is_operand(other):
                return NotImplemented
            note = notes(self).outcome if is_comparison else notes(self).operation
            return note(name, (other, self) if is_reflected else (self, other))

        return method

    for name in ARITHMETIC:
        setattr(kind, f"__{name}__", method_of(name))
        setattr(kind, f"__r{name}__", method_of(name, is_reflected=True))
    for name in COMPARISONS:
        setattr(kind, f"__{name}__", method_of(name, is_comparison=True))
    for name in unary:
        setattr(kind, f"__{name}__", lambda self, name=name: notes(self).operation(name, (self,)))


note_operators(
    Number, operator.attrgetter("_numbers"), lambda x: isinstance(x, OPERANDS), UNARY.keys() - {"round"}
)


def pinned(x: object) -> Any:
    """Returns a number instead of what stands for it, and anything else as it is."""
    return x.pinned() if type(x) is Number else x


def exact_size(x: object) -> Any:
    """Returns the integer that a size is, which then is a constant, and anything else as it is."""
    return x.pinned() if type(x) is not Number and hasattr(type(x), "pinned") else x
