"""Elementwise functions of transposed arrays, in the order in which these lie in memory.

NumPy gives a result the memory order of its operands. Loops run over arrays in C order, so

    %2: float32[3000, 2000] = .T(%0)                   # in Fortran order, as %3 is
    %3: float32[3000, 2000] = exp(%2)

becomes

    %4: float32[2000, 3000] = exp(%0)
    %3: float32[3000, 2000] = .T(%4)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....backends.meta.layout import layout
from ..instruction import Instruction, Value
from ..loops.loop import EXPRESSIONS
from ..nested import mapped
from ..program import Program

_ELEMENTWISE = {*EXPRESSIONS} - {".copy"}  # whose copy is in C order
Order = tuple[int, ...]


def in_memory_order(program: Program) -> Program:
    """Returns the program with elementwise functions of arrays in C order, where the result was a permutation
    of such. One that only elementwise functions with results in C order take is in C order, too: their loops
    compute it."""
    uses, results = program.uses(), {*program.results()}
    turned = _Turned(program.next_number())
    orders: dict[Value, Order] = {}
    for i in reversed(program.instructions):
        if order := _order_of(i):
            (y,) = i.outputs
            others = [u for u in uses.get(y, ()) if u.name not in _ELEMENTWISE or u.written]
            if y in results or others or any(u.outputs[0] in orders for u in uses.get(y, ())):
                orders[y] = order
            else:
                turned.same[y] = replace(y, strides=layout(y.shape, None, y.dtype).strides)
    for i in program.instructions:
        turned.add(i, orders.get(i.outputs[0]) if i.outputs else None)
    return replace(program, instructions=turned.instructions, outputs=turned.current(program.outputs))


class _Turned:
    """The instructions so far.

    Args:
        number: of the first new value.

    Attributes:
        same: the value that takes the place of another.
    """

    def __init__(self, number: int):
        self.instructions: list[Instruction] = []
        self._numbers: Iterator[int] = itertools.count(number)
        self.same: dict[Value, Value] = {}
        self._views: dict[tuple[Value, Order], Value] = {}  # the dims of a value in this order

    def current(self, x: Any) -> Any:
        return mapped(lambda x: self.same.get(x, x) if isinstance(x, Value) else x, x)

    def add(self, i: Instruction, order: Order | None) -> None:
        for y in i.outputs:
            if y.of in self.same:
                self.same[y] = replace(y, of=self.same[y.of].storage)
        written = tuple([self.same.get(x, x).storage for x in i.written])
        args, kwargs, outputs = self.current((i.args, i.kwargs, i.outputs))
        i = replace(i, args=args, kwargs=kwargs, outputs=outputs, written=written)
        if order is None:
            self.instructions.append(i)
            return
        args, (y,) = [self._turned(x, order) if isinstance(x, Value) else x for x in i.args], i.outputs
        shape = _steps(y.shape, order)
        made = Value(next(self._numbers), shape, layout(shape, None, y.dtype).strides, y.dtype)
        self.instructions.append(replace(i, args=tuple(args), outputs=(made,)))
        back = tuple([order.index(d) for d in range(y.ndim)])
        self.same[y] = replace(y, of=made)
        self.instructions.append(_transposition(made, back, self.same[y]))
        self._views[self.same[y], order] = made

    def _turned(self, x: Value, order: Order) -> Value:
        """Returns the view of an operand with the dims of the result in this order."""
        if not x.ndim:
            return x
        if (x, order) not in self._views:
            whole = x
            if x.ndim < len(order):
                extra = len(order) - x.ndim
                shape, strides = (1,) * extra + x.shape, (0,) * extra + x.strides
                whole = Value(next(self._numbers), shape, strides, x.dtype, x.storage)
                self.instructions.append(Instruction("reshape", (x, shape), {}, (whole,)))
            shape, strides = _steps(whole.shape, order), _steps(whole.strides, order)
            view = Value(next(self._numbers), shape, strides, x.dtype, x.storage)
            self.instructions.append(_transposition(whole, order, view))
            self._views[x, order] = view
        return self._views[x, order]


def _transposition(x: Value, order: Order, y: Value) -> Instruction:
    name, args = (".T", (x,)) if order == (1, 0) else ("transpose", (x, order))
    return Instruction(name, args, {}, (y,))


def _order_of(i: Instruction) -> Order | None:
    """Returns the dims of an elementwise result, the outermost in memory first; None for one in C order."""
    if i.name not in _ELEMENTWISE or i.written or len(i.outputs) != 1 or {*i.kwargs.values()} - {None}:
        return None
    (y,) = i.outputs
    if y.of is not None or y.ndim < 2 or not y.size or y.is_c_order:
        return None
    order = tuple(sorted(range(y.ndim), key=lambda d: (-y.strides[d], y.shape[d] > 1)))
    shape, strides = _steps(y.shape, order), _steps(y.strides, order)
    return order if layout(shape, strides, y.dtype).flags.c_contiguous else None


def _steps(of: Sequence[int], order: Order) -> tuple[int, ...]:
    return tuple([of[d] for d in order])
