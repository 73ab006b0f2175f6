"""Which attributes of objects a program depends on: those that functions name."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .bytecode import (
    Modules,
    attributes_in,
    compares_identity,
    gets_at_classes,
    gets_at_others,
    globals_in,
    names_in,
    stores_in,
)

_OF_CALLABLES = ("func", "args", "keywords", "__self__", "__func__", "__wrapped__")


@dataclass
class Uses:
    """What the code of functions uses, by names.

    Attributes:
        names: of globals and attributes.
        accessed: the names of attributes, each with those of the attributes whose attribute it is: see
            `attributes_in`.
        stored: the names that objects may get; None for any: see `stores_in`.
        is_dynamic: whether a function gets at attributes that it doesn't name, as by `getattr`.
        gets_at_classes: whether a function may make an object of a class that it got from another object.
        asks_types: whether a function calls `type`, so that what stands for a number isn't as good as one.
        asks_identity: whether a function asks what is the same object (`x is y`), other than None.
    """

    names: set[str] = field(default_factory=set)
    accessed: dict[str, set[str]] = field(default_factory=dict)
    stored: set[str | None] = field(default_factory=set)
    is_dynamic: bool = False
    gets_at_classes: bool = False
    asks_types: bool = False
    asks_identity: bool = False

    def add(self, code: types.CodeType, modules: Modules) -> None:
        """Adds what a function uses.

        Args:
            modules: where it loads modules that only compute.
        """
        self.names |= names_in(code)
        self.stored |= stores_in(code)
        for name, before in attributes_in(code):
            self.accessed.setdefault(name, set()).add(before)
        self.is_dynamic = self.is_dynamic or gets_at_others(code, modules)
        self.gets_at_classes = self.gets_at_classes or gets_at_classes(code)
        self.asks_types = self.asks_types or "type" in globals_in(code)
        self.asks_identity = self.asks_identity or compares_identity(code)

    def add_type(self) -> None:
        """Adds that a function has `type` as an object."""
        self.asks_types = self.is_dynamic = self.gets_at_classes = True


@dataclass
class _Named:
    """Attributes of a module, an object or a class that are followed as soon as functions name them.

    Attributes:
        followed: the names of those that were followed, or never are.
        owners: the ids of the object, or of the objects of the class; None for a module.
    """

    entries: Mapping
    followed: set[str]
    owners: list[int] | None


class NamedAttributes:
    """The attributes of all objects that a function uses, and which of them it names.

    `x.optimizer.step` doesn't mean the attribute `step` of each object, but of what was found under the name
    "optimizer", unless a function may give an object an attribute `optimizer`, or it is computed.
    """

    def __init__(self, uses: Uses):
        self._uses = uses
        self._all: dict[int, _Named] = {}  # by the ids of modules, objects and classes
        self._found_as: dict[int, set[str]] = {}  # by the ids of objects, the names of entries with them
        self._computed = {*_OF_CALLABLES, ""}  # names of properties and the like

    def found(self, name: str, x: object) -> object:
        """Notes that an object is found under a name; returns the object."""
        self._found_as.setdefault(id(x), set()).add(name)
        return x

    def add_computed(self, names: Iterable[str]) -> None:
        """Notes attributes that are computed when they are read."""
        self._computed.update(names)

    def add(self, key: object, entries: Mapping, followed: set[str], owner: object = None) -> bool:
        """Adds attributes, of which some are followed anyway; returns False if they are known.

        Args:
            key: the module, object or class that has them.
            owner: the object, also if it is its class that has them; None for a module.
        """
        if (known := self._all.get(id(key))) is not None:
            known.owners += [id(owner)]  # type: ignore[operator]
            return False
        self._all[id(key)] = _Named(entries, followed, None if owner is None else [id(owner)])
        return True

    def unfollowed(self) -> Iterator[tuple[Mapping, list[str]]]:
        """Yields attributes that functions name, with the names, and from then on takes them as followed.

        At first those of objects that were found under names before them; if there are no more, the others.
        """
        return self._named(set().union(*self._uses.accessed.values()))

    def unfollowed_elsewhere(self) -> Iterator[tuple[Mapping, list[str]]]:
        """Yields the attributes, as `unfollowed`, of objects that were found under no name before them."""
        return self._named(set().union(*self._found_as.values()))

    def _named(self, known: set[str]) -> Iterator[tuple[Mapping, list[str]]]:
        """Yields attributes that functions name.

        Args:
            known: the names of attributes that are other objects than those found under other names.
        """
        known = set() if None in self._uses.stored else known - self._computed - self._uses.stored
        for named in self._all.values():
            names = self._names(named, known) - named.followed
            named.followed |= names
            yield named.entries, sorted(names)

    def _names(self, named: _Named, known: set[str]) -> set[str]:
        if self._uses.is_dynamic:
            return {*named.entries}
        if named.owners is None:
            return named.entries.keys() & self._uses.names
        others = known.difference(*[self._found_as.get(owner, ()) for owner in named.owners])
        return {name for name in named.entries if not self._uses.accessed.get(name, others) <= others}
