"""Leaves out what a backward program computes from gradients that are zero, as those of unused results."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ...backends.functions import row_of
from ...backends.functions.table import EACH, ELEMENTWISE, FIRST, TOGETHER
from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program

_ADDED = {"initial", "prepend", "append"}  # numbers beside the arrays


def without_gradients(program: Program, absent: Collection[Value]) -> Program | None:
    """Returns a backward program without the inputs that are zero; None in place of a result that is zero.

    An addition of one becomes its other argument. None is returned where an instruction takes such a gradient
    which isn't known to return zeros of zeros, or that writes to one.
    """
    zeros, same = {*absent}, _Same()
    kept: list[Instruction] = []
    for i in program.instructions:
        found = [k for k, x in enumerate(i.args) if isinstance(x, Value) and x in zeros]
        if _adds_in_place(i):
            if not _added(i, found, zeros, same, kept):
                return None
        elif i.is_host or not {x.storage for x in zeros}.union(same.storages).isdisjoint(i.written):
            return None
        elif not found and zeros.isdisjoint(i.inputs()):
            kept.append(same.applied(i))
        elif _is_zero(i, zeros):
            zeros |= {*i.outputs}
        elif i.name != "add" or len(found) != 1 or not same.add(i.outputs[0], i.args[1 - found[0]]):
            return None
    results = mapped(lambda x: None if isinstance(x, Value) and x in zeros else same(x), program.outputs)
    inputs, loose = (tuple([x for x in found if x not in zeros]) for found in (program.inputs, program.loose))
    return replace(program, inputs=inputs, loose=loose, instructions=kept, outputs=results)


def _adds_in_place(i: Instruction) -> bool:
    """Whether an instruction is the sum of gradients, `x += y`, of an array that is no view."""
    return i.name == "add" and i.kwargs == {"out": (i.args[0],)} and i.args[0].of is None


def _added(i: Instruction, found: list[int], zeros: set[Value], same: _Same, kept: list[Instruction]) -> bool:
    """Keeps what is left of `x += y`; False if nothing can stand for it."""
    x, y = i.args
    if 1 in found:
        return True
    if 0 in found:
        zeros.discard(x)
        return all([z.storage is not x for z in zeros]) and same.add(x, y)
    if x not in same.storages:
        kept.append(same.applied(i))
        return True
    y, before = same(y), same.released(x)  # it becomes an array of its own
    if before is None or not _is_like(y, x):
        return False
    kept.append(replace(i, args=(before, y), kwargs={}, outputs=(x,), written=()))
    return True


def _is_zero(i: Instruction, zeros: set[Value]) -> bool:
    """Whether an instruction returns zeros, as these arguments are."""
    given, row = [x in zeros for x in i.inputs()], row_of(i.name)
    if i.name == "kernel.vjp":
        return all(given[1:])
    if row is None or i.written or not _ADDED.isdisjoint(i.kwargs):
        return False
    if row.linear == FIRST:
        return i.args[0] in zeros and sum(given) == 1
    if row.linear == TOGETHER:
        is_sum = row.kind == ELEMENTWISE and not all([isinstance(x, Value) for x in i.args])  # with a number
        return all(given) and not is_sum
    return row.linear == EACH and any(given)


def _is_like(y: object, x: Value) -> bool:
    return isinstance(y, Value) and (y.shape, y.strides, y.dtype) == (x.shape, x.strides, x.dtype)


class _Same:
    """What stands for values: another of the same shape, strides and dtype, or a view of its memory."""

    def __init__(self) -> None:
        self._known: dict[Value, Value] = {}
        self._used: set[Value] = set()
        self.storages: set[Value] = set()  # which may not be written to any more

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Value):
            return x
        self._used.add(x)
        if x in self._known or x.of is None:
            return self._known.get(x, x)
        storage = self(x.of).storage
        if storage is not x.of:
            self._known[x] = replace(x, of=storage)
        return self._known.get(x, x)

    def add(self, x: Value, y: object) -> bool:
        """Lets `y` stand for `x`; False if it isn't like it."""
        y = self(y)
        if not _is_like(y, x):
            return False
        self._known[x] = y
        self.storages |= {x.storage, y.storage}
        return True

    def released(self, x: Value) -> Value | None:
        """Lets `x` stand for itself again, and returns what stood for it; None if that has been used."""
        self.storages.discard(x)
        return None if x in self._used else self._known.pop(x, None)

    def applied(self, i: Instruction) -> Instruction:
        outputs = tuple(map(self, i.outputs))
        return replace(i, args=mapped(self, i.args), kwargs=mapped(self, i.kwargs), outputs=outputs)
