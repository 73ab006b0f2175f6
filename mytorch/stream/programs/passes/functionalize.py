"""Makes results of what is written in place: `add(%1, 2, out=%1)` becomes `%5 = add(%1, 2)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..program import Instruction, Program, Value, leaves, mapped


def functionalize(program: Program) -> Program:
    """Returns the program with a new value for each array that an instruction wrote as a whole.

    Inputs and state stay as they are, and arrays with a view that is made before the write and used after it:
    who holds it must see what is written.
    """
    fixed = {*program.inputs, *program.state, *program.constants, *program.gradients()}
    views = _views(program)
    count = 1 + max([v.number for v in program.inputs], default=-1)
    count = max([count, *[v.number + 1 for i in program.instructions for v in i.outputs]])
    count = max([count, *[v.number + 1 for v in (*program.state, *program.constants)]])
    latest: dict[Value, Value] = {}
    instructions = []

    def current(x: Any) -> Any:
        return latest.get(x, x) if isinstance(x, Value) else x

    for number, i in enumerate(program.instructions):
        args, kwargs = mapped(current, i.args), mapped(current, i.kwargs)
        out = _whole_output(i, fixed)
        if out is None or any([made < number < used for made, used in views.get(out, ())]):
            written = tuple([current(value) for value in i.written])
            instructions.append(replace(i, args=args, kwargs=kwargs, written=written))
            continue
        made = Value(count, out.shape, out.strides, out.dtype)
        count += 1
        kwargs = {name: x for name, x in kwargs.items() if name != "out"}
        instructions.append(replace(i, args=args, kwargs=kwargs, outputs=(made,), written=()))
        latest[out] = made
    return replace(program, instructions=instructions, outputs=mapped(current, program.outputs))


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


def _whole_output(i: Instruction, fixed: set[Value]) -> Value | None:
    """Returns the array that an instruction wrote as a whole, if nothing else refers to its memory."""
    outs = [x for x in leaves(i.kwargs.get("out")) if x is not None]
    if len(outs) != 1 or i.outputs or "where" in i.kwargs or outs[0].of is not None or outs[0] in fixed:
        return None
    whole_ones = [x for x in leaves(i.args) if isinstance(x, Value) and x.shape == outs[0].shape]
    if not any([x.strides == outs[0].strides for x in whole_ones]):
        return None
    if not all([_has_order(x, outs[0]) for x in whole_ones]):
        return None  # the result might lie in another order
    dtypes = {x.dtype for x in leaves(i.args) if isinstance(x, (Value, np.generic))}
    whole = dtypes == {outs[0].dtype} and "." not in i.name
    return outs[0] if whole else None
