"""Removes views that are the same as their base, and writes transposed matrices as `.T`."""

from __future__ import annotations

from ...backends.functions import row_of
from ...backends.functions.table import VIEW
from ..program.instruction import Instruction, Value
from ..program.program import Program
from .rewriting import Rewrite


def fold_views(program: Program) -> Program:
    """Returns the program without views that have the shape, strides and dtype of what they are a view of.

    %2 = reshape(%1, (2, 3)); %3 = swapaxes(%2, 0, 1)     becomes, for %1 of shape (2, 3),     %3 = .T(%1)
    """
    made = Rewrite(program)
    transposed: dict[Value, Value] = {}  # by matrix, what it is the transpose of
    for i in map(made.renamed, program.instructions):
        if not _is_view(i):
            made.keep(i)
            continue
        (x, *_), (y,) = i.args, i.outputs
        if _same_layout(x, y):
            made.replace(y, x)
        elif not _is_transposed(x, y):
            made.keep(i)
        elif x in transposed and _same_layout(transposed[x], y):
            made.replace(y, transposed[x])
        else:
            transposed[y] = x
            made.keep(Instruction(".T", (x,), {}, i.outputs, (), i.origin))
    return made.program()


def _is_view(i: Instruction) -> bool:
    """Whether an instruction returns one view of its first argument."""
    row = row_of(i.name)
    if row is None or row.kind != VIEW or len(i.outputs) != 1 or not isinstance(i.args[0], Value):
        return False
    return i.outputs[0].storage is i.args[0].storage


def _same_layout(x: Value, y: Value) -> bool:
    return (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)


def _is_transposed(x: Value, y: Value) -> bool:
    return x.ndim == 2 and (x.shape[::-1], x.strides[::-1], x.dtype) == (y.shape, y.strides, y.dtype)
