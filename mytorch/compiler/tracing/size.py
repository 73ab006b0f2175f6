"""Size: what stands for a size of an array, or for what was computed of sizes, while a function is traced.

The package's own functions get a SizeInt, which is an int for all C code; those of the user get a SizeNumber,
which is none: what reads its exact value (`range(n)`, `table[n]`, `f"{n}"`) can't do so without a guard that
it is the same.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...backends.device import is_users
from ...core.size import Size
from ...utils.nested import leaves
from .number import UNARY, Number, note_operators

if TYPE_CHECKING:
    from .expressions import Expression
    from .sizes import Sizes


class Noting:
    """The methods of a size that is an int or a float for all C code."""

    @classmethod
    def of(cls, x: Any, expression: Expression, sizes: Sizes) -> Any:
        """Returns the size of this value in the trace."""
        made = cls(x)
        made.expression, made.sizes = expression, sizes
        return made

    def as_size(self) -> Any:
        return self

    def pinned(self) -> Any:
        """Returns the exact value, which is a guard from now on."""
        return self.sizes.pin((self,))

    def bit_length(self) -> Any:
        return self.sizes.operation("bit_length", (self,))

    def is_integer(self) -> bool:
        return self % 1 == 0

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


class SizeInt(Noting, int):
    """A size for the package's own functions.

    Attributes:
        expression: what it is of the sizes of arrays.
        sizes: notes what is done with it.
    """

    __class__ = property(lambda self: int)
    __hash__ = int.__hash__


class SizeFloat(Noting, float):
    """A number that the package's own functions have computed of sizes."""

    __class__ = property(lambda self: float)
    __hash__ = float.__hash__

    def __int__(self) -> int:
        return exact(self.sizes.operation("int", (self,)))

    __trunc__ = __int__


class SizeNumber(Number):
    """A size, or what was computed of sizes, for the functions of the user."""

    __slots__ = ()

    def as_size(self) -> SizeInt:
        """Returns the size for the package's own functions."""
        return SizeInt.of(operator.index(self.example), self.value, self._numbers)

    def __index__(self) -> int:
        return self._read(operator.index)

    def __int__(self) -> int:
        return int(self.pinned())  # what is computed of a plain integer isn't noted

    def __float__(self) -> float:
        return self._read(float)

    def __repr__(self) -> str:
        return self._read(repr)

    def __str__(self) -> str:
        return self._read(str)

    def __format__(self, spec: str) -> str:
        return self._read(lambda x: format(x, spec))

    def _read(self, kind: Callable) -> Any:
        """Returns what the exact value gives; for the user's functions with a guard that it is the same."""
        frame = sys._getframe(2)
        while _is_transparent(frame) and frame.f_back is not None:
            frame = frame.f_back
        return kind(self.pinned() if is_strict(frame) else self.example)


def _is_transparent(frame: FrameType) -> bool:
    """Returns whether a function only passes on to its caller what it reads of a size: NumPy's, and the text
    of a shape."""
    name = str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] == "numpy" or name == Size.__module__


def is_strict(frame: FrameType) -> bool:
    """Returns whether a function is the user's, or a model's, which may do anything with a size."""
    return is_users(frame) or str(frame.f_globals.get("__name__")).startswith("mytorch.models")


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


def _is_number(x: object) -> bool:
    return type(x) in (int, float, bool, SizeInt, SizeFloat)


note_operators(Noting, operator.attrgetter("sizes"), _is_number, UNARY.keys() - {"round", "trunc"})
