"""Where Python values are that a function uses."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MISSING = object()


def content(cell: types.CellType) -> object:
    """Returns the value of a variable of a closure, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


class Attributes(Mapping):
    """Attributes of an object that aren't in its `__dict__`, as a mapping.

    Args:
        names: the names of these attributes.

    Attributes:
        owner: the object.
    """

    def __init__(self, owner: object, names: Sequence[str]):
        self.owner, self._names = owner, names

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self.owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class ClassAttributes(Attributes):
    """The attributes of a class itself, without those of its bases, as a mapping.

    Attributes:
        entries: Python's own mapping, which can't be written to.
    """

    def __init__(self, owner: type):
        self.entries = vars(owner)
        super().__init__(owner, self.entries)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        return self.entries[name]


class Place:
    """Where a value is: an entry of a mapping, as an attribute or a global.

    Args:
        holder: the mapping; Attributes for what isn't in a dict.
    """

    __slots__ = ("holder", "name")

    def __init__(self, holder: Any, name: object):
        self.holder, self.name = holder, name

    def key(self) -> tuple[int, type, object]:
        """Returns what tells a place from others: 1 and True are two names."""
        return id(owner_of(self.holder)), type(self.name), self.name

    def read(self) -> object:
        """Returns the value, or MISSING."""
        return self.holder.get(self.name, MISSING)

    def write(self, value: object) -> None:
        """Replaces the value; MISSING removes it."""
        if value is MISSING:
            del self.holder[self.name]
        else:
            self.holder[self.name] = value

    def term(self, was: object, named: Callable[[object], str]) -> str:
        """Returns the text of an expression that is true if the value is the same object, or still MISSING.

        Args:
            named: returns a name for an object, by which the text refers to it.
        """
        if was is MISSING:
            return f"{named(self.name)} not in {named(entries_of(self.holder))}"
        if type(self.holder) is Attributes:
            return f"{named(self.holder.owner)}.{self.name} is {named(was)}"
        return f"{named(entries_of(self.holder))}[{named(self.name)}] is {named(was)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.holder is other.holder and self.name == other.name

    def __hash__(self) -> int:
        return hash((id(self.holder), self.name))

    def __str__(self) -> str:
        return str(self.name)


class Variable(Place):
    """A variable of a closure, as the place of a value."""

    __slots__ = ()

    def __init__(self, cell: types.CellType):
        super().__init__(cell, None)

    def read(self) -> object:
        return content(self.holder)

    def write(self, value: object) -> None:
        if value is not MISSING:
            self.holder.cell_contents = value

    def term(self, was: object, named: Callable[[object], str]) -> str:
        return f"{named(self.holder)}.cell_contents is {named(was)}"

    def __str__(self) -> str:
        return "a variable of a closure"


def owner_of(holder: object) -> object:
    """Returns the object that has the attributes, or the mapping or cell itself."""
    return holder.owner if isinstance(holder, Attributes) else holder


def entries_of(mapping: Mapping) -> Mapping:
    """Returns the mapping that Python itself looks names up in."""
    return mapping.entries if isinstance(mapping, ClassAttributes) else mapping
