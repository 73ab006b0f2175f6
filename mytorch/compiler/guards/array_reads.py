"""Of which NumPy arrays a function may read elements itself, and of which it only makes tensors.

Tensors of `from_numpy` share the array's memory: the program reads that each time that it runs, so that the
elements needn't be compared, unless Python computes with them, too (`x * from_numpy(table) + table[0]`).
"""

from __future__ import annotations

import types
from collections.abc import Iterable

import numpy as np

from ...ops.create import as_tensor, from_numpy
from .bytecode import argument_of, attribute_loads_in, codes_in
from .loads import Load

_SHARING = {id(from_numpy), id(as_tensor)}


class ArrayReads:
    """The arrays, by their ids, and the names of attributes, that functions load for more than to share."""

    def __init__(self) -> None:
        self._read: set[int | str | None] = set()

    def add_items(self, items: Iterable[object]) -> None:
        """Adds what a container holds: which of its items are loaded isn't known."""
        self._read |= {id(x) for x in items if isinstance(x, np.ndarray)}

    def add_loads(self, function: types.CodeType, loads: list[Load]) -> None:
        """Adds what a function loads, in other ways than in `from_numpy(name)`.

        Args:
            loads: the values that it loads by names.
        """
        sharing = [(x.code, x.offset) for x in loads if id(x.value) in _SHARING]
        shared = {(id(code), argument_of(code, offset)) for code, offset in sharing}
        others = [x.value for x in loads if (id(x.code), x.offset) not in shared]
        self.add_items(others)
        for code in codes_in(function):
            found = {name for at, _, name in attribute_loads_in(code) if (id(code), at) not in shared}
            self._read |= found

    def only_shares(self, x: np.ndarray, names: set[str]) -> bool:
        """Returns whether functions only make tensors of an array that they find under these names."""
        return bool(names) and self._read.isdisjoint({id(x), None, *names})
