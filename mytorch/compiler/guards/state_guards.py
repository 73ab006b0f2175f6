"""Guards of Python's state: each compares one thing with what it was when the function was traced.

A guard says three things: which expressions are true as long as nothing has changed, which most often is so
(the expressions of all guards become one function, see `Comparison`); what has changed, if they aren't true;
and how the change is undone, if the traced function itself has made it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Container, Mapping
from operator import is_
from typing import Any

import numpy as np

from .places import MISSING, Attributes, Place, entries_of

PLAIN = (bool, int, float, complex, str, bytes, type(None))
KINDS = (float, int)  # of numbers that may be inputs
LONGEST = 10_000  # more items of a container aren't compared in each call
_LASTING = ("_parameters", "_buffers", "_modules", "_hooks", "_non_persistent_buffers_set")  # of modules


class Comparison:
    """Comparisons as one expression, which takes a third of the time of loops.

    Attributes:
        terms: the parts of the expression; they refer to objects by names that `name` gives them.
    """

    def __init__(self) -> None:
        self.terms: list[str] = []
        self._namespace: dict[str, object] = {}

    def name(self, x: object) -> str:
        """Returns a name for an object."""
        self._namespace[f"x{len(self._namespace)}"] = x
        return f"x{len(self._namespace) - 1}"

    def compiled(self) -> Callable[[], bool]:
        """Returns a function without arguments that returns whether all terms are true."""
        text = f"def compare():\n    return {' and '.join(self.terms or ['True'])}"
        exec(text, self._namespace)  # our own text
        return self._namespace["compare"]


Named = Callable[[object], str]  # `Comparison.name`


class Guard:
    """Something that a compiled program depends on."""

    __slots__ = ()

    def terms(self, named: Named) -> list[str]:
        """Returns expressions that are true if nothing has changed; false, or an error, if something may."""
        raise NotImplementedError

    def failure(self) -> str | None:
        """Returns what has changed, as "x is 3, was 2"; None if nothing has."""
        raise NotImplementedError

    def undo(self) -> None:
        """Restores what has changed, if that can be done."""


class ValueGuard(Guard):
    """A value is the same object, or equal and of a kind that never changes; or there is none, as before."""

    __slots__ = ("place", "was")

    def __init__(self, place: Place):
        self.place, self.was = place, place.read()

    def terms(self, named: Named) -> list[str]:
        return [self.place.term(self.was, named)]

    def failure(self) -> str | None:
        now, was = self.place.read(), self.was
        if is_same(now, was):
            return None
        if now is MISSING or was is MISSING:
            return f"{self.place} is {'gone' if now is MISSING else 'there now'}"
        if isinstance(now, PLAIN) and isinstance(was, PLAIN):
            return f"{self.place} is {now!r}, was {was!r}"
        return f"{self.place} is another object"

    def undo(self) -> None:
        if self.place.read() is not self.was:
            self.place.write(self.was)

    def is_number(self) -> bool:
        """Returns whether the value was and is a number of one kind, and could be an input."""
        kind, is_ours = type(self.was), not isinstance(self.place.holder, Attributes)
        return is_ours and kind in KINDS and type(self.place.read()) is kind


class RegistrationsGuard(Guard):
    """No class was registered as a subclass of an abstract one."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token = abc.get_cache_token()

    def terms(self, named: Named) -> list[str]:
        return [f"{named(abc.get_cache_token)}() == {self._token}"]

    def failure(self) -> str | None:
        return "a class was registered" if abc.get_cache_token() != self._token else None


class BasesGuard(Guard):
    """A class has the same bases."""

    __slots__ = ("_bases", "_kind")

    def __init__(self, kind: type):
        self._kind, self._bases = kind, kind.__mro__

    def terms(self, named: Named) -> list[str]:
        return [f"{named(self._kind)}.__mro__ is {named(self._bases)}"]

    def failure(self) -> str | None:
        return f"{self._kind.__name__} has other bases" if self._kind.__mro__ is not self._bases else None


class NamesGuard(Guard):
    """An object has the same attributes, or a dict the same keys.

    Args:
        is_ordered: whether their order matters.
        guarded: the names, with `key_in` of the mapping, whose values have guards of their own.
    """

    __slots__ = ("_entries", "_guarded", "_is_ordered", "_names")

    def __init__(self, entries: Mapping, is_ordered: bool, guarded: Container[tuple]):
        self._entries, self._names, self._guarded = entries, tuple(entries), guarded
        self._is_ordered = is_ordered and 1 < len(entries) <= LONGEST

    def terms(self, named: Named) -> list[str]:
        entries, names = named(entries_of(self._entries)), self._names
        others = [x for x in names if x not in _LASTING and key_in(self._entries, x) not in self._guarded]
        if (self._is_ordered or len(others) > 4) and all([type(name) is str for name in names]):
            return [f"(*{entries},) == {named(names)}"]
        is_empty = type(self._entries) is dict and not names  # `not` takes a third of the time of `len`
        found = [f"{named(name)} in {entries}" for name in others]
        found.append(f"not {entries}" if is_empty else f"len({entries}) == {len(names)}")
        return [*found, f"all(map({named(is_)}, {entries}, {named(names)}))"] if self._is_ordered else found

    def failure(self) -> str | None:
        if len(self._entries) != len(self._names) or {*self._entries} != {*self._names}:
            return "an object has other attributes, or a dict other keys"
        if self._is_ordered and not all(map(is_, self._entries, self._names)):
            return "the keys of a dict have another order"
        return None

    def undo(self) -> None:
        for name in self._entries.keys() - {*self._names} if isinstance(self._entries, dict) else ():
            del self._entries[name]


class ParametersGuard(Guard):
    """An optimizer has the same groups, with the same lists of parameters; its dicts may become others."""

    __slots__ = ("_groups", "_lists", "_optimizer")

    def __init__(self, optimizer: Any):
        self._optimizer, self._groups = optimizer, [*optimizer.param_groups]
        self._lists = [group["params"] for group in self._groups]

    def terms(self, named: Named) -> list[str]:
        found = f"{named(self._optimizer)}.param_groups"
        same = [f"{found}[{k}]['params'] is {named(was)}" for k, was in enumerate(self._lists)]
        return [f"len({found}) == {len(self._groups)}", *same]

    def failure(self) -> str | None:
        now = [group.get("params") for group in self._optimizer.param_groups]
        is_same = len(now) == len(self._lists) and all(map(is_, now, self._lists))
        return None if is_same else "an optimizer has other groups of parameters"

    def undo(self) -> None:
        self._optimizer.param_groups[:] = self._groups
        for group, params in zip(self._groups, self._lists, strict=True):
            group["params"] = params


class ItemsGuard(Guard):
    """A list or a deque has the same items."""

    __slots__ = ("_items", "_was")

    def __init__(self, items: Any):
        self._items, self._was = items, tuple(items)

    def terms(self, named: Named) -> list[str]:
        items, was = named(self._items), named(self._was)
        return [f"len({items}) == {len(self._was)}", f"all(map({named(is_)}, {items}, {was}))"]

    def failure(self) -> str | None:
        kind = type(self._items).__name__
        return None if is_same(tuple(self._items), self._was) else f"the items of a {kind} have changed"

    def undo(self) -> None:
        if isinstance(self._items, list):
            self._items[:] = self._was
        else:
            self._items.clear()
            (self._items.update if isinstance(self._items, set) else self._items.extend)(self._was)


class SetGuard(ItemsGuard):
    """A set has the same items, in the order in which Python gives them."""

    __slots__ = ()

    def terms(self, named: Named) -> list[str]:
        return [f"{named(is_same)}((*{named(self._items)},), {named(self._was)})"]


class LayoutGuard(Guard):
    """A NumPy array has the same shape, dtype and strides, and may be written to as before."""

    __slots__ = ("_array", "_was")

    def __init__(self, array: np.ndarray):
        self._array, self._was = array, _layout(array)

    def terms(self, named: Named) -> list[str]:
        return [f"{named(_layout)}({named(self._array)}) == {named(self._was)}"]

    def failure(self) -> str | None:
        is_other = _layout(self._array) != self._was
        return "a NumPy array has another shape, dtype or layout" if is_other else None

    def undo(self) -> None:
        x, (shape, dtype, _, is_writeable) = self._array, self._was
        if x.dtype != dtype or x.shape != shape:
            x.dtype, x.shape = dtype, shape
        if x.flags.writeable != is_writeable:
            x.setflags(write=is_writeable)


class ElementsGuard(Guard):
    """A NumPy array has the same elements."""

    __slots__ = ("_bytes", "_copy", "array")

    def __init__(self, array: np.ndarray):
        self.array, self._copy, self._bytes = array, array.copy(), array.tobytes()

    def terms(self, named: Named) -> list[str]:
        return [f"{named(self.array)}.tobytes() == {named(self._bytes)}"]

    def failure(self) -> str | None:
        is_other = self.array.tobytes() != self._bytes
        return "the elements of a NumPy array have changed" if is_other else None

    def undo(self) -> None:
        if self.array.flags.writeable:
            self.array[...] = self._copy


def key_in(entries: Mapping, name: object) -> tuple[int, type, object]:
    """Returns what tells an entry of a mapping from others: 1 and True are two names."""
    return id(entries.owner if isinstance(entries, Attributes) else entries), type(name), name


def is_same(now: object, was: object) -> bool:
    """Returns whether two values are the same object, or equal and of a kind that never changes."""
    if now is was:
        return True
    if type(now) is not type(was):
        return False
    if isinstance(now, tuple) and not hasattr(now, "__dict__"):
        return len(now) == len(was) and all(map(is_same, now, was))
    if type(now) in (float, complex):
        return repr(now) == repr(was)  # -0.0 is another number than 0.0
    if isinstance(now, np.generic) and not isinstance(now, np.void):
        return now.dtype == was.dtype and now.tobytes() == was.tobytes()
    return type(now) in PLAIN and now == was


def _layout(x: np.ndarray) -> tuple:
    return x.shape, x.dtype, x.strides, x.flags.writeable
