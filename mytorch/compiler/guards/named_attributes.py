"""The attributes of objects that a program depends on: those attributes that functions name."""

from __future__ import annotations

import types
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

from ...core.tensor import Tensor
from ...nn.module import Module
from .allowed import HOLDERS
from .bytecode import Uses
from .modules import is_foreign, is_mytorchs

_KNOWN = {object, ABC, Generic, *Module.__mro__}
_OF_CALLABLES = ("func", "args", "keywords", "__self__", "__func__", "__wrapped__")


@dataclass
class _Named:
    """Attributes of a module, an object or a class that are followed as soon as functions name them.

    Attributes:
        followed: the names of the attributes that were followed, or never are.
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

    def names_of(self, x: object) -> set[str]:
        """Returns the names under which an object is found."""
        return self._found_as.get(id(x), set())

    def add_computed(self, names: Iterable[str]) -> None:
        """Notes attributes that are computed when they are read."""
        self._computed.update(names)

    def add(
        self, key: object, entries: Mapping, names: Iterable[str], implicit: Iterable[str] = (),
        owner: object = None,
    ) -> bool:
        """Adds attributes; returns False if they are known.

        Args:
            key: the module, object or class that has them.
            names: the names of the attributes that may be followed.
            implicit: the names of the attributes that are followed anyway.
            owner: the object, also if it is its class that has them; None for a module.
        """
        if (known := self._all.get(id(key))) is not None:
            known.owners += [id(owner)]  # type: ignore[operator]
            return False
        followed = ({*entries} - {*names}).union(implicit)
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


def has_own_attributes(kind: type) -> bool:
    """Returns whether no methods but the user's know of attributes of a class, those of a module excepted."""
    return all([x in _KNOWN or not is_foreign(x.__module__) for x in kind.__mro__])


def is_followed(x: object) -> bool:
    """Returns whether an object consists of its attributes: one of a user's class, of the package's, or of
    some of Python's."""
    if not hasattr(x, "__dict__") or isinstance(x, (type, types.ModuleType, types.FunctionType)):
        return False
    module, is_function = type(x).__module__, "__wrapped__" in x.__dict__  # or something that stands for one
    is_ours = is_mytorchs(module) and not isinstance(x, Tensor) and not is_function
    return is_ours or isinstance(x, HOLDERS) or not is_foreign(module)


def methods_of(x: object) -> list[str]:
    """Returns the names of methods that were set on an object itself."""
    return [name for name in x.__dict__ if callable(getattr(type(x), name, None))]


def slots_of(x: object) -> list[str]:
    """Returns the names of the attributes for which a user's class, or a base of it, has slots."""
    with_slots = [base for base in type(x).__mro__ if "__slots__" in vars(base)]
    bases = [base for base in with_slots if not is_foreign(base.__module__)]
    found = [(name, slot) for base in bases for name, slot in vars(base).items()]
    return [name for name, slot in found if isinstance(slot, types.MemberDescriptorType)]
