"""Simplifies what is read from and written to parts of arrays, as gradients of slices are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program


def simplify_slices(program: Program) -> Program:
    """Returns the program without views of whole arrays, and with parts added in place.

        z = zeros(…); z[4:8] = g; y = add(x, z)     becomes     add(x[4:8], g, out=x[4:8])

    where x is a sum that nothing else uses. Parts without elements are neither written nor concatenated.
    """
    return _Simplified(program).program()


class _Simplified:
    """The instructions so far, and what stands for the values that have gone."""

    def __init__(self, program: Program):
        self._program, self._uses = program, program.uses()
        self._results, self._changed = {*program.results()}, program.changed_storages()
        self._number = 1 + max([v.number for v in _values(program)], default=-1)
        self._same: dict[Value, Value] = {}
        self._instructions: list[Instruction] = []
        self._writes = Counter([value for i in program.instructions for value in i.written])
        self._parts = dict(self._padded())
        self._copies = {z for z, part in self._parts.items() if part is not None and _sets_all(part)}
        self._parts = {z: part for z, part in self._parts.items() if z not in self._copies}
        self._sums = {z for z, part in self._parts.items() if part is not None}

    def program(self) -> Program:
        """Returns the program."""
        for i in self._program.instructions:
            if not self._simplifies(i):
                self._emit(i)
        outputs = mapped(self._current, self._program.outputs)
        return replace(self._program, instructions=self._instructions, outputs=outputs)

    def _current(self, x: object) -> Any:
        while isinstance(x, Value) and x in self._same:
            x = self._same[x]
        return x

    def _emit(self, i: Instruction, **changes: object) -> None:
        i = replace(i, **changes)
        self._instructions.append(i.renamed(self._current))

    def _padded(self) -> Iterator[tuple[Value, Instruction | None]]:
        """Yields each array of zeros in which at most one part is set, before it is read, and the part."""
        for i in self._program.instructions:
            if i.name != "zeros" or i.outputs[0] in self._results:
                continue
            z = i.outputs[0]
            writers = [user for user in self._uses.get(z, ()) if z in user.written]
            sets = [w for w in writers if not _sets_nothing(w)]
            simple = all([w.name == ".setitem" and w.args[0] is z and _is_slice(w.args[1]) for w in writers])
            values = [w.args[-1] for w in sets]
            known = all([isinstance(v, Value) and v.storage not in self._changed for v in values])
            if simple and known and len(sets) < 2 and self._writes[z] == len(writers):
                if not sets:
                    yield z, None
                elif self._uses[z][: len(writers)] == writers:
                    yield z, sets[0]

    def _simplifies(self, i: Instruction) -> bool:
        """Replaces an instruction; False if it stays."""
        if i.name == ".getitem" and _is_whole(i.args[0], i.args[1], i.outputs[0]):
            self._same[i.outputs[0]] = i.args[0]
            return True
        if i.name == ".setitem":
            if i.args[0] in self._copies and not _sets_nothing(i):
                self._emit(i, name=".copy", args=i.args[2:], outputs=i.args[:1], written=())
                return True
            return _sets_nothing(i)
        if i.name == "zeros" and i.outputs[0] in self._copies:
            return True
        if i.name == "concatenate" and i.outputs:
            parts = [x for x in i.args[0] if x.size]
            if len(parts) == 1 and parts[0].dtype == i.outputs[0].dtype:
                self._emit(i, name=".copy", args=(parts[0],), kwargs={"order": "K"})
                return True
        return i.name == "add" and not i.kwargs and len(i.outputs) == 1 and self._adds(i)

    def _adds(self, i: Instruction) -> bool:
        y = i.outputs[0]
        if any([not isinstance(x, Value) or (x.shape, x.dtype) != (y.shape, y.dtype) for x in i.args]):
            return False
        for x, z in (i.args, i.args[::-1]):
            if z not in self._parts:
                continue
            part = self._parts[z]
            if part is None:
                self._emit(i, name=".copy", args=(x,), kwargs={"order": "K"})
                return True
            if self._is_free(x, i):
                self._add_in_place(i, x, part)
                return True
        self._sums.add(y)
        return False

    def _is_free(self, x: Value, i: Instruction) -> bool:
        """Whether this instruction alone uses a sum."""
        readers = [user for user in self._uses[x] if x not in user.written]
        return x in self._sums and readers == [i] and x not in self._results

    def _add_in_place(self, i: Instruction, x: Value, part: Instruction) -> None:
        total, (_, index, value) = self._current(x), part.args
        made = np.empty(total.shape, total.dtype)[index]
        view = Value(self._number, made.shape, made.strides, total.dtype, total)
        self._number += 1
        self._emit(i, name=".getitem", args=(total, index), outputs=(view,))
        self._emit(i, args=(view, value), kwargs={"out": (view,)}, outputs=(), written=(total,))
        self._same[i.outputs[0]] = total
        self._sums.add(i.outputs[0])


def _values(program: Program) -> Iterator[Value]:
    yield from (*program.inputs, *program.state, *program.constants)
    for i in program.instructions:
        yield from i.outputs


def _is_slice(index: object) -> bool:
    """Whether an index gives a view: of numbers, slices and ellipses."""
    parts = index if isinstance(index, tuple) else (index,)
    return all([type(x) in (int, slice, type(None), type(...)) for x in parts])


def _is_whole(x: object, index: object, y: Value) -> bool:
    return isinstance(x, Value) and _is_slice(index) and (x.shape, x.strides) == (y.shape, y.strides)


def _sets_nothing(i: Instruction) -> bool:
    value = i.args[-1]
    return i.name == ".setitem" and isinstance(value, Value) and not value.size


def _sets_all(i: Instruction) -> bool:
    target, index, value = i.args
    if (target.shape, target.dtype) != (value.shape, value.dtype):
        return False
    return np.empty(target.shape, target.dtype)[index].shape == target.shape
