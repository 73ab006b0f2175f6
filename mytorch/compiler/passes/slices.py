"""Simplifies what is read from and written to parts of arrays, as gradients of slices are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..program.instruction import Instruction, Value
from ..program.program import Program
from .rewriting import Rewrite


def simplify_slices(program: Program) -> Program:
    """Returns the program without views of whole arrays, and with parts added in place.

    z = zeros(…); z[4:8] = g; y = add(x, z)     becomes     add(x[4:8], g, out=x[4:8])

    where x is a sum that nothing else uses. Parts without elements are neither written nor concatenated.
    """
    simplified = _Simplified(program)
    for i in program.instructions:
        if not simplified.takes(i):
            simplified.made.keep(simplified.made.renamed(i))
    return simplified.made.program()


class _Simplified:
    """The simplified program so far, the arrays of zeros, and the sums that nothing else uses."""

    def __init__(self, program: Program):
        self.made, self._uses = Rewrite(program), program.uses()
        self._results, self._changed = {*program.results()}, program.changed_storages()
        parts = dict(self._parts_of_zeros(program))
        self._copies = {z for z, part in parts.items() if part is not None and _sets_all(part)}
        self._parts = {z: part for z, part in parts.items() if z not in self._copies}
        self._sums = {z for z, part in self._parts.items() if part is not None}

    def _parts_of_zeros(self, program: Program) -> Iterator[tuple[Value, Instruction | None]]:
        """Yields each array of zeros in which at most one part is set, before it is read, and the part."""
        writes = Counter([value for i in program.instructions for value in i.written])
        for (z,) in [i.outputs for i in program.instructions if i.name == "zeros"]:
            users = self._uses.get(z, [])
            writers = [user for user in users if _sets_slice(user, z)]
            parts = [user for user in writers if not _sets_nothing(user)]
            if z not in self._results and writes[z] == len(writers):
                if not parts:
                    yield z, None
                elif len(parts) == 1 and users[: len(writers)] == writers and self._sets_lasting(parts[0]):
                    yield z, parts[0]

    def _sets_lasting(self, i: Instruction) -> bool:
        """Whether the part of an array becomes another array, to which nothing writes."""
        value = i.args[-1]
        return isinstance(value, Value) and value.storage not in self._changed

    def takes(self, i: Instruction) -> bool:
        """Replaces an instruction; False if it stays."""
        take = {
            ".getitem": self._getitem, ".setitem": self._setitem, "zeros": self._zeros,
            "concatenate": self._concatenate, "add": self._add,
        }.get(i.name)
        return take is not None and take(i)

    def _zeros(self, i: Instruction) -> bool:
        return i.outputs[0] in self._copies

    def _getitem(self, i: Instruction) -> bool:
        """A view of a whole array is that."""
        (x, index), (y,) = i.args, i.outputs
        is_whole = isinstance(x, Value) and _is_slice(index) and (x.shape, x.strides) == (y.shape, y.strides)
        if is_whole:
            self.made.replace(y, x)
        return is_whole

    def _setitem(self, i: Instruction) -> bool:
        if not _sets_nothing(i) and i.args[0] in self._copies:
            self._copy(i, i.args[2], i.args[0])
            return True
        return _sets_nothing(i)

    def _concatenate(self, i: Instruction) -> bool:
        """One array beside others without elements is copied."""
        parts = [x for x in i.args[0] if x.size] if i.outputs else []
        if len(parts) != 1 or parts[0].dtype != i.outputs[0].dtype:
            return False
        self._copy(i, parts[0], i.outputs[0], order="K")
        return True

    def _copy(self, i: Instruction, x: Value, y: Value, **kwargs: object) -> None:
        x = self.made.current(x)
        self.made.keep(i, name=".copy", args=(x,), kwargs=kwargs or i.kwargs, outputs=(y,), written=())

    def _add(self, i: Instruction) -> bool:
        if i.kwargs or len(i.outputs) != 1:
            return False
        (y,) = i.outputs
        if any([not isinstance(x, Value) or (x.shape, x.dtype) != (y.shape, y.dtype) for x in i.args]):
            return False
        for x, z in (i.args, i.args[::-1]):
            if z in self._parts and self._added(i, x, self._parts[z]):
                return True
        self._sums.add(y)
        return False

    def _added(self, i: Instruction, x: Value, part: Instruction | None) -> bool:
        """Adds a part to a sum in place, if this instruction alone uses it."""
        if part is None:
            self._copy(i, x, i.outputs[0], order="K")
            return True
        readers = [user for user in self._uses[x] if x not in user.written]
        if x not in self._sums or readers != [i] or x in self._results:
            return False
        total, (_, index, value) = self.made.current(x), part.args
        like = np.empty(total.shape, total.dtype)[index]
        view = self.made.new(like.shape, total.dtype, like.strides, total)
        self.made.keep(i, name=".getitem", args=(total, index), outputs=(view,))
        args, written = (view, self.made.current(value)), (total.storage,)
        self.made.keep(i, args=args, kwargs={"out": (view,)}, outputs=(), written=written)
        self.made.replace(i.outputs[0], total)
        self._sums.add(i.outputs[0])
        return True


def _is_slice(index: object) -> bool:
    """Whether an index gives a view: of numbers, slices and ellipses."""
    parts = index if isinstance(index, tuple) else (index,)
    return all([type(x) in (int, slice, type(None), type(...)) for x in parts])


def _sets_slice(i: Instruction, z: Value) -> bool:
    return i.name == ".setitem" and i.args[0] is z and _is_slice(i.args[1])


def _sets_all(i: Instruction) -> bool:
    target, index, value = i.args
    if (target.shape, target.dtype) != (value.shape, value.dtype):
        return False
    return np.empty(target.shape, target.dtype)[index].shape == target.shape


def _sets_nothing(i: Instruction) -> bool:
    value = i.args[-1]
    return i.name == ".setitem" and isinstance(value, Value) and not value.size
