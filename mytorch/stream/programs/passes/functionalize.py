"""Makes results of what is written in place: `add(%1, 2, out=%1)` becomes `%5 = add(%1, 2)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..program import Instruction, Program, Value, leaves, mapped


def functionalize(program: Program) -> Program:
    """Returns the program with a new value for each array that an instruction wrote as a whole.

    Arrays with views, inputs and state stay as they are: who holds another view must see what is written.
    """
    viewed = {value.of for i in program.instructions for value in i.outputs if value.of is not None}
    fixed = viewed | {*program.inputs, *program.state, *program.constants, *program.gradients()}
    count = 1 + max([v.number for v in program.inputs], default=-1)
    count = max([count, *[v.number + 1 for i in program.instructions for v in i.outputs]])
    count = max([count, *[v.number + 1 for v in (*program.state, *program.constants)]])
    latest: dict[Value, Value] = {}
    instructions = []

    def current(x: Any) -> Any:
        return latest.get(x, x) if isinstance(x, Value) else x

    for i in program.instructions:
        args, kwargs = mapped(current, i.args), mapped(current, i.kwargs)
        out = _whole_output(i, fixed)
        if out is None:
            written = tuple([current(value) for value in i.written])
            instructions.append(replace(i, args=args, kwargs=kwargs, written=written))
            continue
        made = Value(count, out.shape, out.strides, out.dtype)
        count += 1
        kwargs = {name: x for name, x in kwargs.items() if name != "out"}
        instructions.append(replace(i, args=args, kwargs=kwargs, outputs=(made,), written=()))
        latest[out] = made
    return replace(program, instructions=instructions, outputs=mapped(current, program.outputs))


def _whole_output(i: Instruction, fixed: set[Value]) -> Value | None:
    """Returns the array that an instruction wrote as a whole, if nothing else refers to its memory."""
    outs = [x for x in leaves(i.kwargs.get("out")) if x is not None]
    if len(outs) != 1 or i.outputs or "where" in i.kwargs or outs[0].of is not None or outs[0] in fixed:
        return None
    shapes = [x.shape for x in leaves(i.args) if isinstance(x, Value)]
    whole_ones = [x for x in leaves(i.args) if isinstance(x, Value) and x.shape == outs[0].shape]
    if any([x.strides != outs[0].strides for x in whole_ones]):
        return None  # the result might lie in another order
    dtypes = {x.dtype for x in leaves(i.args) if isinstance(x, (Value, np.generic))}
    whole = outs[0].shape in shapes and dtypes == {outs[0].dtype} and "." not in i.name
    return outs[0] if whole else None
