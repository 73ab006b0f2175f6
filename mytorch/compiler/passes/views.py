"""Removes views that are the same as their base, and writes transposed matrices as `.T`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...backends.functions import row_of
from ...backends.functions.table import VIEW
from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program


def fold_views(program: Program) -> Program:
    """Returns the program without views that have the shape, strides and dtype of what they are a view of."""
    same: dict[Value, Value] = {}
    transposed: dict[Value, Value] = {}  # and what a matrix is the transpose of
    kept = []

    def current(x: object) -> Any:
        return same.get(x, x) if isinstance(x, Value) else x

    for i in program.instructions:
        i = i.renamed(current)
        x, y = (i.args or (None,))[0], (i.outputs or (None,))[0]
        row = row_of(i.name)
        is_view = row is not None and row.kind == VIEW and isinstance(x, Value) and len(i.outputs) == 1
        if not is_view or y.storage is not x.storage:
            kept.append(i)
        elif _same_layout(x, y):
            same[y] = x
        elif _is_transposed(x, y):
            if x in transposed and _same_layout(transposed[x], y):
                same[y] = transposed[x]
                continue
            transposed[y] = x
            kept.append(Instruction(".T", (x,), {}, i.outputs, (), i.origin))
        else:
            kept.append(i)
    return replace(program, instructions=kept, outputs=mapped(current, program.outputs))


def _same_layout(x: Value, y: Value) -> bool:
    return (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)


def _is_transposed(x: Value, y: Value) -> bool:
    return x.ndim == 2 and (x.shape[::-1], x.strides[::-1], x.dtype) == (y.shape, y.strides, y.dtype)
