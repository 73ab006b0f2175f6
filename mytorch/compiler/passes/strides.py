"""Strides, after passes have put other instructions, or operands, in place: declares those that results of
instructions have now, and gives the program's results those that they had."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ...backends.meta.array import MetaArray, new_of, view
from ...backends.meta.layout import layout, steps
from ...utils.nested import leaves, mapped
from ..files.checking import rule_of
from ..program.instruction import Instruction, Value
from ..program.program import Program


def declare_strides(program: Program) -> Program:
    """Returns the program with the strides, and views, that NumPy's functions give of the operands that they
    have now: loops, and what writes in place, depend on them."""
    same: dict[Value, Value] = {}
    kept = []

    def current(x: object) -> Any:
        return mapped(lambda x: same.get(x, x) if isinstance(x, Value) else x, x)

    for i in program.instructions:
        if same:
            written = tuple([same.get(x, x).storage for x in i.written])
            i = replace(i, args=current(i.args), kwargs=current(i.kwargs), written=written)
        for y, now in zip(i.outputs, _outputs(i), strict=True):
            if y.of in same and now is y:
                now = replace(y, of=same[y.of].storage)
            if now is not y:
                same[y] = now
        kept.append(replace(i, outputs=current(i.outputs)) if same else i)
    return replace(program, instructions=kept, outputs=current(program.outputs))


def _outputs(i: Instruction) -> tuple[Value, ...]:
    """Returns the outputs as NumPy makes them."""
    inputs = i.inputs()
    is_flat = all([y.of is None and y.ndim < 2 for y in i.outputs]) and "reshape" not in i.name
    if is_flat or not inputs or i.is_host:
        return i.outputs
    if any([x.dtype.kind == "O" for x in inputs]) or (rule := rule_of(i.name)) is None:
        return i.outputs
    arrays = {x.storage: new_of(layout(x.storage.shape, x.storage.strides, x.storage.dtype)) for x in inputs}
    given = {x: view(arrays[x.storage], layout(x.shape, x.strides, x.dtype)) for x in inputs}
    storages = {id(x.storage): value for value, x in arrays.items()}
    args, kwargs = mapped(lambda x: given[x] if isinstance(x, Value) else x, (i.args, i.kwargs))
    made = [x for x in leaves(rule(*args, **kwargs)) if isinstance(x, MetaArray)]
    if len(made) != len(i.outputs):
        return i.outputs
    found = []
    for y, x in zip(i.outputs, made, strict=True):
        of = storages.get(id(x.storage))
        is_same = x.strides == y.strides and of is y.of
        found.append(y if is_same else replace(y, strides=x.strides, of=of))
    return tuple(found)


def restore_strides(program: Program, given: Program) -> Program:
    """Returns the program with results whose strides are those of the given program's, copied if need be: a
    caller may ask for a view of them."""
    instructions, number, made = [*program.instructions], program.next_number(), {}
    results = program.results()
    held = Counter([x.storage for x in results])
    for now, before in zip(results, given.results(), strict=True):
        order = dense_order(before)
        if order is None or held[now.storage] > 1 or _alike(now.shape, now.strides, before.strides):
            continue
        inverse = inverse_of(order)
        turned = _transposed(number, now, order)
        copy = Value(number + 1, turned.shape, _in_c_order(turned), now.dtype)
        made[now] = _transposed(number + 2, copy, inverse)
        number += 3
        instructions += [
            Instruction("transpose", (now, order), {}, (turned,)),
            Instruction(".copy", (turned,), {}, (copy,)),
            Instruction("transpose", (copy, inverse), {}, (made[now],)),
        ]
    outputs = mapped(lambda x: made.get(x, x) if isinstance(x, Value) else x, program.outputs)
    return replace(program, instructions=instructions, outputs=outputs) if made else program


def inverse_of(order: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the order of dims that undoes another one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _transposed(number: int, x: Value, order: tuple[int, ...]) -> Value:
    shape, strides = (tuple([sizes[d] for d in order]) for sizes in (x.shape, x.strides))
    return Value(number, shape, strides, x.dtype, x.storage)


def _in_c_order(x: Value) -> tuple[int, ...]:
    return steps(x.shape, range(x.ndim), x.dtype.itemsize)


def dense_order(x: Value) -> tuple[int, ...] | None:
    """Returns the dims of new memory, the outermost first; None if there are gaps between elements."""
    if x.dtype.kind == "O" or not x.size:
        return None
    order = tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
    dense = steps(x.shape, order, x.dtype.itemsize)
    return order if _alike(x.shape, x.strides, dense) else None


def _alike(shape: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    return all([n < 2 or a == b for n, a, b in zip(shape, x, y, strict=True)])
