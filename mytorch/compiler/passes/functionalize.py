"""Makes results of what is written in place: `add(%1, 2, out=%1)` becomes `%5 = add(%1, 2)`."""

from __future__ import annotations

import numpy as np

from ...utils.nested import leaves
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.raising import raising
from .rewriting import Rewrite


def functionalize(program: Program) -> Program:
    """Returns the program with a new value for each array that an instruction wrote as a whole.

    add(%1, %2, out=%1); exp(%1, out=%1)     becomes     %3 = add(%1, %2); %4 = exp(%3); %1[...] = %4

    Inputs and state get their last value at the end, or before the next call of a Python object or
    instruction that may raise an error. An array with a view that is made before the write and used after it
    stays as it is: the view must see what is written.
    """
    functional, ends = _Functional(program), raising(program)
    for number, i in enumerate(program.instructions):
        if i.is_host or i in ends:
            functional.write_back()
        functional.add(number, i)
    functional.write_back()
    return functional.made.program()


class _Functional:
    """The program so far, in which the last value that was written to an array as a whole stands for it."""

    def __init__(self, program: Program):
        self.made, self._views = Rewrite(program), _views(program)
        self._outer = {*program.inputs, *program.state}  # the arrays that are there behind the program, too
        self._unwritten: dict[Value, None] = {}  # those among them that have yet to get their last value
        fixed = {*program.constants, *program.gradients()}
        self._targets = _targets(program) - fixed
        self._stay = self._outer | fixed
        self._shared = self._stay | program.changed_storages() - self._targets
        self._unique = {*program.results()}  # no other result may have their memory

    def add(self, number: int, i: Instruction) -> None:
        out, now = _whole_output(i), self.made.renamed(i)
        if _sets_whole(i) and i.args[0] in self._targets:
            self._set(i.args[0], now.args[-1], i.origin)
        elif out is not None and (out in self._targets or self._is_own(out, number)):
            value = self.made.new(out.shape, out.dtype, out.strides)
            kwargs = {name: x for name, x in now.kwargs.items() if name != "out"}
            self.made.keep(now, kwargs=kwargs, outputs=(value,), written=())
            self._replace(out, value)
        else:
            self.made.keep(now)

    def _is_own(self, out: Value, number: int) -> bool:
        """Whether no view of an array that is written now was made before and is used later."""
        views = self._views.get(out, ())
        return out not in self._stay and not any([made < number < used for made, used in views])

    def _set(self, x: Value, value: Value, origin: str) -> None:
        """Lets a value stand for an array, or a copy of one that has other uses or may change."""
        is_shared = value.of is not None or value in self._shared
        if is_shared or {x, value} <= self._unique or value.strides != x.strides:
            copy = self.made.new(x.shape, x.dtype, x.strides)
            self.made.keep(Instruction(".copy", (value,), {}, (copy,), (), origin))
            value = copy
        if x in self._unique:
            self._unique.add(value)
        self._replace(x, value)

    def _replace(self, x: Value, value: Value) -> None:
        self.made.replace(x, value)
        if x in self._outer:
            self._unwritten[x] = None

    def write_back(self) -> None:
        """Writes to inputs and state what stands for them."""
        for x in self._unwritten:
            self.made.keep(Instruction(".setitem", (x, ..., self.made.forget(x)), {}, (), (x,)))
        self._unwritten.clear()


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
