"""Makes results of what is written in place: `add(%1, 2, out=%1)` becomes `%5 = add(%1, 2)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...utils.nested import leaves, mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising


def functionalize(program: Program) -> Program:
    """Returns the program with a new value for each array that an instruction wrote as a whole.

    add(%1, %2, out=%1); exp(%1, out=%1)     becomes     %3 = add(%1, %2); %4 = exp(%3); %1[...] = %4

    Inputs and state get their last value at the end, or before the next call of a Python object or
    instruction that may raise an error. An array with a view that is made before the write and used after it
    stays as it is: the view must see what is written.
    """
    return _Functional(program).program()


class _Functional:
    """The instructions so far, and the value that stands for each array that was written."""

    def __init__(self, program: Program):
        self._program = program
        self._given = {*program.inputs, *program.state}
        self._kept = {*program.constants, *program.gradients()}
        self._targets = _targets(program) - self._kept
        self._views = _views(program)
        self._held = self._given | self._kept | program.changed_storages() - self._targets
        self._unique = {*program.results()}  # no other result may have their memory
        values = [*self._given, *self._kept, *[v for i in program.instructions for v in i.outputs]]
        self._number = 1 + max([v.number for v in values], default=-1)
        self._latest: dict[Value, Value] = {}
        self._instructions: list[Instruction] = []

    def program(self) -> Program:
        ends = raising(self._program)
        for number, i in enumerate(self._program.instructions):
            if i.is_host or i in ends:
                self._write_back()
            self._add(number, i)
        self._write_back()
        outputs = mapped(self._current, self._program.outputs)
        return replace(self._program, instructions=self._instructions, outputs=outputs)

    def _current(self, x: object) -> Any:
        return self._latest.get(x, x) if isinstance(x, Value) else x

    def _add(self, number: int, i: Instruction) -> None:
        out = _whole_output(i)
        args, kwargs = mapped(self._current, i.args), mapped(self._current, i.kwargs)
        if _sets_whole(i) and i.args[0] in self._targets:
            self._set(i, args[-1])
        elif out is not None and (out in self._targets or self._is_own(out, number)):
            made = self._new(out)
            kwargs = {name: x for name, x in kwargs.items() if name != "out"}
            self._instructions.append(replace(i, args=args, kwargs=kwargs, outputs=(made,), written=()))
            self._latest[out] = made
        else:
            written = tuple([self._current(value) for value in i.written])
            self._instructions.append(replace(i, args=args, kwargs=kwargs, written=written))

    def _is_own(self, out: Value, number: int) -> bool:
        """Whether no view of an array that is written now was made before and is used later."""
        views = self._views.get(out, ())
        return out not in self._given | self._kept and not any([made < number < used for made, used in views])

    def _set(self, i: Instruction, value: Value) -> None:
        """Lets a value stand for an array, or a copy of one that has other uses or may change."""
        x = i.args[0]
        is_shared = (
            value.of is not None or value in self._held or (x in self._unique and value in self._unique)
        )
        if is_shared or value.strides != x.strides:
            made = self._new(x)
            self._instructions.append(Instruction(".copy", (value,), {}, (made,), (), i.origin))
            value = made
        if x in self._unique:
            self._unique.add(value)
        self._latest[x] = value

    def _new(self, like: Value) -> Value:
        self._number += 1
        return Value(self._number - 1, like.shape, like.strides, like.dtype)

    def _write_back(self) -> None:
        for x in [x for x in self._latest if x in self._given]:
            made = self._latest.pop(x)
            self._instructions.append(Instruction(".setitem", (x, ..., made), {}, (), (x,)))


def _targets(program: Program) -> set[Value]:
    """Returns the arrays that are always written as a whole, and of which no view is used after that."""
    numbered = [*enumerate(program.instructions)]
    views = {x.of: number for number, i in numbered for x in (*i.inputs(), *i.outputs)}
    writes = [(number, i, x) for number, i in numbered for x in i.written]
    first = {x: number for number, _, x in reversed(writes)}
    partly = {x for _, i, x in writes if not _writes_whole(i, x)}
    held = {x for i in program.instructions if i.is_host for x in i.inputs()}
    held |= {x.of for x in program.results()}
    return {x for x, number in first.items() if views.get(x, -1) < number} - partly - held


def _writes_whole(i: Instruction, x: Value) -> bool:
    return not i.is_host and (_sets_whole(i) or _whole_output(i) is x)


def _sets_whole(i: Instruction) -> bool:
    """Whether an instruction is `x[...] = y`, with arrays of the same shape and dtype."""
    if i.name != ".setitem" or i.args[1] not in (..., (...,)) or not isinstance(i.args[2], Value):
        return False
    x, _, y = i.args
    return x.of is None and x.is_c_order and (x.shape, x.dtype) == (y.shape, y.dtype)


def _has_order(x: Value, out: Value) -> bool:
    """Whether the dims of an operand lie in the result's order, but for those along which it is the same."""
    strides = [step for step in x.strides if step]
    return x.strides == out.strides or (out.is_c_order and strides == sorted({*strides}, reverse=True))


def _views(program: Program) -> dict[Value, list[tuple[int, int]]]:
    """Returns for each array the numbers of the instructions that make its views, and that last use them."""
    last = {x: number for number, i in enumerate(program.instructions) for x in i.inputs()}
    last |= dict.fromkeys(program.results(), len(program.instructions))
    found: dict[Value, list[tuple[int, int]]] = {}
    for number, i in enumerate(program.instructions):
        for y in i.outputs:
            if y.of is not None:
                found.setdefault(y.of, []).append((number, last.get(y, number)))
    return found


def _whole_output(i: Instruction) -> Value | None:
    """Returns the array that an instruction wrote as a whole."""
    outs = [x for x in leaves(i.kwargs.get("out")) if x is not None]
    if len(outs) != 1 or i.outputs or "where" in i.kwargs or "." in i.name:
        return None
    (out,) = outs
    return out if out.of is None and _is_made_alike(i, out) else None


def _is_made_alike(i: Instruction, out: Value) -> bool:
    """Whether a new array for the result would have the dtype, and the order in memory, of the given one."""
    operands = [x for x in leaves(i.args) if isinstance(x, (Value, np.generic))]
    whole = [x for x in operands if isinstance(x, Value) and x.shape == out.shape]
    is_ordered = any([x.strides == out.strides for x in whole]) and all([_has_order(x, out) for x in whole])
    return is_ordered and {x.dtype for x in operands} == {out.dtype}
