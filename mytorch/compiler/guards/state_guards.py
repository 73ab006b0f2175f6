"""Guards of Python's state: each compares one thing with its state when the function was traced.

A guard says three things: which expression is true as long as nothing has changed, which most often is so
(the expressions of all guards become one function, see `Comparison`); what has changed, if it isn't true; and
how the change is undone, if the traced function itself has made it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Container, Mapping
from operator import is_
from typing import Any

import numpy as np

from .places import MISSING, Attributes, entries_of, owner_of

PLAIN = (bool, int, float, complex, str, bytes, type(None))
KINDS = (float, int)  # of numbers that may be inputs
LONGEST = 10_000  # more items of a container aren't compared in each call
_LASTING = ("_parameters", "_buffers", "_modules", "_hooks", "_non_persistent_buffers_set")  # of modules
Named = Callable[[object], str]  # `Comparison.name`


class Comparison:
    """Comparisons as one expression, which takes a third of the time of loops.

    Attributes:
        terms: the parts of the expression; they refer to objects by names that `name` gives them.
    """

    def __init__(self) -> None:
        self.terms: list[str] = []
        self._namespace: dict[str, object] = {"is_": is_, "is_same": is_same, "layout": _layout}

    def name(self, x: object) -> str:
        """Returns a name for an object."""
        self._namespace[f"x{len(self._namespace)}"] = x
        return f"x{len(self._namespace) - 1}"

    def compiled(self) -> Callable[[], bool]:
        """Returns a function without arguments that returns whether all terms are true."""
        text = f"def compare():\n    return {' and '.join(self.terms or ['True'])}"
        exec(text, self._namespace)  # our own text
        return self._namespace["compare"]


class Guard:
    """Something of Python's state that a compiled program depends on.

    Attributes:
        x: the object.
        was: what `read` returned for it when the function was traced.
        expression: is true if nothing has changed; false, or an error, if something may.
        text: what has changed, if something has.
    """

    expression = text = ""

    def __init__(self, x: Any):
        self.x = x
        self.was = self.read()

    def read(self) -> Any:
        """Returns what is compared."""
        raise NotImplementedError

    def term(self, named: Named) -> str:
        """Returns the expression, with names for the objects in it."""
        return self.expression.format(x=named(self.x), was=named(self.was))

    def failure(self) -> str | None:
        """Returns what has changed, as "x is 3, was 2"; None if nothing has."""
        is_other = not is_same(self.read(), self.was)
        return self.text.format(x=self.x, kind=type(self.x).__name__) if is_other else None

    def undo(self) -> None:
        """Restores what has changed, if that can be done."""


class ValueGuard(Guard):
    """The value at a Place is the same object, or an equal one that never changes; or it is still missing."""

    def read(self) -> object:
        return self.x.read()

    def term(self, named: Named) -> str:
        return self.x.term(self.was, named)

    def failure(self) -> str | None:
        now, was = self.read(), self.was
        if is_same(now, was):
            return None
        if now is MISSING or was is MISSING:
            return f"{self.x} is {'gone' if now is MISSING else 'there now'}"
        is_plain = isinstance(now, PLAIN) and isinstance(was, PLAIN)
        return f"{self.x} is {now!r}, was {was!r}" if is_plain else f"{self.x} is another object"

    def undo(self) -> None:
        if self.read() is not self.was:
            self.x.write(self.was)

    def is_flag(self) -> bool:
        """Returns whether the value was a bool in a dict, and is the other one."""
        return type(self.was) is bool and type(self.x.holder) is dict and self.read() is (not self.was)

    def is_number(self) -> bool:
        """Returns whether the value was and is a number of one kind, and could be an input."""
        kind, is_ours = type(self.was), not isinstance(self.x.holder, Attributes)
        return is_ours and kind in KINDS and type(self.read()) is kind


class RegistrationsGuard(Guard):
    """No class was registered as a subclass of an abstract one: `abc.get_cache_token` counts."""

    expression, text = "{x}() == {was}", "a class was registered"

    def read(self) -> int:
        return abc.get_cache_token()


class BasesGuard(Guard):
    """A class has the same bases."""

    expression, text = "{x}.__mro__ is {was}", "{x.__name__} has other bases"

    def read(self) -> tuple:
        return self.x.__mro__


class NamesGuard(Guard):
    """An object has the same attributes, or a dict the same keys.

    Args:
        is_ordered: whether their order matters.
        guarded: the keys of places (see `Place.key`) whose values have guards of their own.
    """

    def __init__(self, x: Mapping, is_ordered: bool, guarded: Container[tuple]):
        super().__init__(x)
        self._guarded, self._is_ordered = guarded, is_ordered and 1 < len(x) <= LONGEST

    def read(self) -> tuple:
        return tuple(self.x)

    def term(self, named: Named) -> str:
        x, names = named(entries_of(self.x)), self.was
        owner, lasting = id(owner_of(self.x)), _LASTING
        others = [k for k in names if k not in lasting and (owner, type(k), k) not in self._guarded]
        if (self._is_ordered or len(others) > 4) and all([type(name) is str for name in names]):
            return f"(*{x},) == {named(names)}"
        is_empty = type(self.x) is dict and not names  # `not` takes a third of the time of `len`
        terms = [f"not {x}" if is_empty else f"len({x}) == {len(names)}"]
        terms += [f"all(map(is_, {x}, {named(names)}))"] if self._is_ordered else []
        return " and ".join([*[f"{named(name)} in {x}" for name in others], *terms])

    def failure(self) -> str | None:
        if len(self.x) != len(self.was) or {*self.x} != {*self.was}:
            return "an object has other attributes, or a dict other keys"
        is_other = self._is_ordered and not all(map(is_, self.x, self.was))
        return "the keys of a dict have another order" if is_other else None

    def undo(self) -> None:
        for name in self.x.keys() - {*self.was} if isinstance(self.x, dict) else ():
            del self.x[name]


class ParametersGuard(Guard):
    """An optimizer has the same groups, with the same lists of parameters; its dicts may become others."""

    text = "an optimizer has other groups of parameters"

    def __init__(self, x: Any):
        super().__init__(x)
        self._groups = [*x.param_groups]

    def read(self) -> tuple:
        return tuple([group.get("params") for group in self.x.param_groups])

    def term(self, named: Named) -> str:
        groups = f"{named(self.x)}.param_groups"
        same = [f"{groups}[{k}]['params'] is {named(was)}" for k, was in enumerate(self.was)]
        return " and ".join([f"len({groups}) == {len(same)}", *same])

    def undo(self) -> None:
        self.x.param_groups[:] = self._groups
        for group, params in zip(self._groups, self.was, strict=True):
            group["params"] = params


class ItemsGuard(Guard):
    """A list or a deque has the same items."""

    expression = "len({x}) == len({was}) and all(map(is_, {x}, {was}))"
    text = "the items of a {kind} have changed"

    def read(self) -> tuple:
        return tuple(self.x)

    def undo(self) -> None:
        if isinstance(self.x, list):
            self.x[:] = self.was
        else:
            self.x.clear()
            (self.x.update if isinstance(self.x, set) else self.x.extend)(self.was)


class SetGuard(ItemsGuard):
    """A set has the same items, in the order in which Python gives them."""

    expression = "is_same((*{x},), {was})"


class LayoutGuard(Guard):
    """A NumPy array has the same shape, dtype and strides, and may be written to as before."""

    expression, text = "layout({x}) == {was}", "a NumPy array has another shape, dtype or layout"

    def read(self) -> tuple:
        return _layout(self.x)

    def failure(self) -> str | None:
        return self.text if self.read() != self.was else None

    def undo(self) -> None:
        shape, dtype, _, is_writeable = self.was
        if self.x.dtype != dtype or self.x.shape != shape:
            self.x.dtype, self.x.shape = dtype, shape
        if self.x.flags.writeable != is_writeable:
            self.x.setflags(write=is_writeable)


class ElementsGuard(Guard):
    """A NumPy array has the same elements."""

    expression, text = "{x}.tobytes() == {was}", "the elements of a NumPy array have changed"

    def __init__(self, x: np.ndarray):
        super().__init__(x)
        self._copy = x.copy()

    def read(self) -> bytes:
        return self.x.tobytes()

    def undo(self) -> None:
        if self.x.flags.writeable:
            self.x[...] = self._copy


def is_same(now: object, was: object) -> bool:
    """Returns whether two values are the same object, or equal and of a kind that never changes."""
    if now is was or type(now) is not type(was):
        return now is was
    if isinstance(now, tuple) and not hasattr(now, "__dict__"):
        return len(now) == len(was) and all(map(is_same, now, was))
    if type(now) in (float, complex):
        return repr(now) == repr(was)  # -0.0 is another number than 0.0
    if isinstance(now, np.generic) and not isinstance(now, np.void):
        return now.dtype == was.dtype and now.tobytes() == was.tobytes()
    return type(now) in PLAIN and now == was


def _layout(x: np.ndarray) -> tuple:
    return x.shape, x.dtype, x.strides, x.flags.writeable
