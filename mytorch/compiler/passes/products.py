"""Computes products of which only the transpose is used as that: `matmul(a, b).T` as `matmul(b.T, a.T)`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...utils.nested import mapped
from ..program.instruction import Instruction, Value
from ..program.program import Program


def transpose_products(program: Program) -> Program:
    """Returns the program with such products of matrices, as gradients of weights are: BLAS reads transposed
    matrices without a copy, and the result is in C order."""
    uses, results = program.uses(), {*program.results()}
    number = program.next_number()
    transposed = {i.outputs[0]: i.args[0] for i in program.instructions if i.name == ".T"}
    same: dict[Value, Value] = {}
    kept = []

    def current(x: object) -> object:
        return same.get(x, x) if isinstance(x, Value) else x

    for i in program.instructions:
        if i.name == ".T" and i.outputs[0] in same:
            continue
        i = i.renamed(current)
        user = _only_transpose(i, uses, results)
        if user is None:
            kept.append(i)
            continue
        operands = []
        for x in reversed(i.args):
            if x in transposed:
                operands.append(current(transposed[x]))
                continue
            y = Value(number, x.shape[::-1], x.strides[::-1], x.dtype, x.storage)
            number += 1
            kept.append(Instruction(".T", (x,), {}, (y,), (), i.origin))
            operands.append(y)
        shape = i.outputs[0].shape[::-1]
        made = Value(number, shape, np.empty(shape, i.outputs[0].dtype).strides, i.outputs[0].dtype)
        number += 1
        kept.append(replace(i, args=tuple(operands), outputs=(made,)))
        same[user.outputs[0]] = made
    return replace(program, instructions=kept, outputs=mapped(current, program.outputs))


def _only_transpose(i: Instruction, uses: dict, results: set[Value]) -> Instruction | None:
    """Returns the transposition that alone uses a product of two matrices."""
    if i.name != "matmul" or i.kwargs or any([not isinstance(x, Value) or x.ndim != 2 for x in i.args]):
        return None
    users = uses.get(i.outputs[0], [])
    if i.outputs[0] in results or len(users) != 1 or users[0].name != ".T":
        return None
    y = users[0].outputs[0]
    is_viewed = any([v.of is i.outputs[0] and v is not y for user in uses.get(y, ()) for v in user.outputs])
    return None if is_viewed or y in results else users[0]
