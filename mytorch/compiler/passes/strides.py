"""Strides, after passes have put other instructions, or operands, in place: declares those that results of
instructions have now, and gives the program's results those that they had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from ...backends.meta.array import MetaArray, new_of, view
from ...backends.meta.layout import layout, steps
from ...utils.nested import leaves, mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program
from ..program.rules import rule_of
from .rewriting import Rewrite


def declare_strides(program: Program) -> Program:
    """Returns the program with the strides, and views, that NumPy's functions give of the operands that they
    have now: loops, and what writes in place, depend on them.

    %2 of strides (4, 16) = exp(%1)     becomes, if %1 is in C order now,     %2 of strides (16, 4) = exp(%1)
    """
    made = Rewrite(program)
    for i in map(made.renamed, program.instructions):
        for y, now in zip(i.outputs, _outputs(i), strict=True):
            if now is y and made.current(y.of) is not y.of:
                now = replace(y, of=made.current(y.of).storage)
            if now is not y:
                made.replace(y, now)
        outputs = tuple(map(made.current, i.outputs))
        made.keep(i if outputs == i.outputs else replace(i, outputs=outputs))
    return made.program()


def _outputs(i: Instruction) -> tuple[Value, ...]:
    """Returns the outputs as NumPy makes them."""
    rule = _rule_of(i)
    if rule is None:
        return i.outputs
    inputs = i.inputs()
    arrays = {x.storage: new_of(layout(x.storage.shape, x.storage.strides, x.storage.dtype)) for x in inputs}
    given = {x: view(arrays[x.storage], layout(x.shape, x.strides, x.dtype)) for x in inputs}
    storages = {id(x.storage): value for value, x in arrays.items()}
    args, kwargs = mapped(lambda x: given[x] if isinstance(x, Value) else x, (i.args, i.kwargs))
    made = [x for x in leaves(rule(*args, **kwargs)) if isinstance(x, MetaArray)]
    if len(made) != len(i.outputs):
        return i.outputs
    pairs = zip(i.outputs, made, strict=True)
    return tuple([_with_layout(y, x.strides, storages.get(id(x.storage))) for y, x in pairs])


def _rule_of(i: Instruction) -> Callable | None:
    """Returns the rule by which strides follow from those of operands; None if they don't."""
    is_flat = all([y.of is None and y.ndim < 2 for y in i.outputs]) and "reshape" not in i.name
    if is_flat or i.is_host or not i.inputs() or any([x.dtype.kind == "O" for x in i.inputs()]):
        return None
    return rule_of(i.name)


def _with_layout(y: Value, strides: tuple[int, ...], of: Value | None) -> Value:
    return y if y.strides == strides and y.of is of else replace(y, strides=strides, of=of)


def restore_strides(program: Program, original: Program) -> Program:
    """Returns the program with results whose strides are those of the original program's, copied if need be:
    a caller may ask for a view of them.

    return %2     becomes     %3 = transpose(%2, (1, 0)); %4 = .copy(%3); return transpose(%4, (1, 0))
    """
    made, results = Rewrite(program), program.results()
    made.instructions += program.instructions
    held = Counter([x.storage for x in results])
    for now, before in zip(results, original.results(), strict=True):
        order = dense_order(before)
        if order is None or held[now.storage] > 1 or _alike(now.shape, now.strides, before.strides):
            continue
        turned = _transpose(now, order, made)
        copy = made.new(turned.shape, now.dtype, steps(turned.shape, range(now.ndim), now.dtype.itemsize))
        made.keep(Instruction(".copy", (turned,), {}, (copy,)))
        made.replace(now, _transpose(copy, inverse_of(order), made))
    return made.program()


def _transpose(x: Value, order: tuple[int, ...], made: Rewrite) -> Value:
    shape, strides = (tuple([sizes[d] for d in order]) for sizes in (x.shape, x.strides))
    y = made.new(shape, x.dtype, strides, x)
    made.keep(Instruction("transpose", (x, order), {}, (y,)))
    return y


def inverse_of(order: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the order of dims that undoes another one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def dense_order(x: Value) -> tuple[int, ...] | None:
    """Returns the dims of new memory, the outermost first; None if there are gaps between elements."""
    if x.dtype.kind == "O" or not x.size:
        return None
    order = tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
    dense = steps(x.shape, order, x.dtype.itemsize)
    return order if _alike(x.shape, x.strides, dense) else None


def _alike(shape: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    return all([n < 2 or a == b for n, a, b in zip(shape, x, y, strict=True)])
