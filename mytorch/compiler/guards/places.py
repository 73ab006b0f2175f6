"""Where Python values are that a function uses, and whether they are still the same."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MISSING = object()


class Comparison:
    """Comparisons as one expression, which takes a third of the time of loops.

    Attributes:
        terms: they refer to objects by names that `name` gives them.
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


class Place:
    """Where a value is: an entry of a dict, as an attribute or a global, or a variable of a closure.

    Args:
        holder: the dict or the cell.
        name: of the entry; None for a cell.
    """

    def __init__(self, holder: dict | types.CellType, name: object = None):
        self._holder, self._name = holder, name

    def read(self) -> object:
        """Returns the value; what is no value if there is none."""
        is_cell = isinstance(self._holder, types.CellType)
        return content(self._holder) if is_cell else self._holder.get(self._name, MISSING)

    def write(self, value: object) -> None:
        """Replaces the value."""
        if isinstance(self._holder, types.CellType):
            self._holder.cell_contents = value
        else:
            self._holder[self._name] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._holder is other._holder and self._name == other._name

    def __hash__(self) -> int:
        return hash((id(self._holder), self._name))

    def __str__(self) -> str:
        return "a variable of a closure" if self._name is None else str(self._name)


class Attributes(Mapping):
    """Attributes of an object that aren't in its `__dict__`, as a mapping.

    Args:
        names: of these.

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

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def content(cell: types.CellType) -> object:
    """Returns the value of a variable of a closure, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING
