"""Leaves out what a backward program computes from gradients that are zero, as those of unused results."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ...backends.functions import Row, row_of
from ...backends.functions.table import EACH, ELEMENTWISE, FIRST, TOGETHER
from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program

_ADDED = {"initial", "prepend", "append"}  # numbers beside the arrays


def without_gradients(program: Program, absent: Collection[Value]) -> Program | None:
    """Returns a backward program without the inputs that are zero; None in place of a result that is zero.

    %2 = multiply(%0, %9); %3 = add(%2, %1); return %2, %3     becomes, without %0,     return None, %1

    None is returned where an instruction takes such a gradient which isn't known to return zeros of zeros, or
    that writes to one.
    """
    rest = _Rest(absent)
    if not all(map(rest.takes, program.instructions)):
        return None
    inputs, loose = (
        tuple([x for x in found if x not in rest.zeros]) for found in (program.inputs, program.loose)
    )
    outputs = mapped(rest.result, program.outputs)
    return replace(program, inputs=inputs, loose=loose, instructions=rest.instructions, outputs=outputs)


class _Rest:
    """What is left of a program without some gradients.

    Attributes:
        zeros: the values that are zero.
        instructions: those that are left.
    """

    def __init__(self, absent: Collection[Value]):
        self.zeros, self.instructions = {*absent}, []
        self._same = _Same()

    def result(self, x: Any) -> Any:
        return None if isinstance(x, Value) and x in self.zeros else self._same(x)

    def takes(self, i: Instruction) -> bool:
        """Adds what is left of an instruction; False if nothing can stand for it."""
        found = [k for k, x in enumerate(i.args) if isinstance(x, Value) and x in self.zeros]
        if i.name == "add" and i.kwargs == {"out": (i.args[0],)} and i.args[0].of is None:
            return self._takes_sum_in_place(i, found)
        fixed = self._same.storages.union([x.storage for x in self.zeros])
        if i.is_host or not fixed.isdisjoint(i.written):
            return False
        if self.zeros.isdisjoint(i.inputs()):
            self.instructions.append(self._same.applied(i))
        elif _is_zero(i, self.zeros):
            self.zeros.update(i.outputs)
        else:
            return i.name == "add" and len(found) == 1 and self._same.add(i.outputs[0], i.args[1 - found[0]])
        return True

    def _takes_sum_in_place(self, i: Instruction, found: list[int]) -> bool:
        """Adds what is left of the sum of gradients `x += y`, of an array that is no view."""
        x, y = i.args
        if 1 in found:
            return True
        if 0 in found:
            self.zeros.discard(x)
            return all([z.storage is not x for z in self.zeros]) and self._same.add(x, y)
        if x not in self._same.storages:
            self.instructions.append(self._same.applied(i))
            return True
        y, before = self._same(y), self._same.released(x)  # it becomes an array of its own
        if before is None or not _is_like(y, x):
            return False
        self.instructions.append(replace(i, args=(before, y), kwargs={}, outputs=(x,), written=()))
        return True


def _is_zero(i: Instruction, zeros: set[Value]) -> bool:
    """Whether an instruction returns zeros, as these arguments are."""
    are_zero, row = [x in zeros for x in i.inputs()], row_of(i.name)
    if i.name == "kernel.vjp":
        return all(are_zero[1:])
    if row is None or i.written or not _ADDED.isdisjoint(i.kwargs):
        return False
    if row.linear == FIRST:
        return i.args[0] in zeros and sum(are_zero) == 1
    return any(are_zero) if row.linear == EACH else all(are_zero) and _is_linear_together(i, row)


def _is_linear_together(i: Instruction, row: Row) -> bool:
    """Whether it is linear in all of its arguments, none of which is a number that it adds."""
    is_sum = row.kind == ELEMENTWISE and not all([isinstance(x, Value) for x in i.args])
    return row.linear == TOGETHER and not is_sum


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
