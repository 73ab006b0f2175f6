"""Computes products of which only the transpose is used as that: `matmul(a, b).T` as `matmul(b.T, a.T)`."""

from __future__ import annotations

from ..program.instruction import Instruction, Value
from ..program.program import Program
from .rewriting import Rewrite


def transpose_products(program: Program) -> Program:
    """Returns the program with such products of matrices, as gradients of weights are: BLAS reads transposed
    matrices without a copy, and the result is in C order.

    %2 = matmul(%0, %1); %3 = .T(%2)     becomes     %4 = .T(%1); %5 = .T(%0); %6 = matmul(%4, %5)
    """
    made, uses, results = Rewrite(program), program.uses(), {*program.results()}
    turned = {i.outputs[0]: i.args[0] for i in program.instructions if i.name == ".T"}
    gone: set[Value] = set()
    for i in program.instructions:
        if not gone.isdisjoint(i.outputs):
            continue
        i = made.renamed(i)
        transposition = _only_transpose(i, uses, results)
        if transposition is None:
            made.keep(i)
            continue
        operands = tuple([_transposed(x, turned, made, i.origin) for x in reversed(i.args)])
        product = made.new(i.outputs[0].shape[::-1], i.outputs[0].dtype)
        made.keep(i, args=operands, outputs=(product,))
        made.replace(transposition.outputs[0], product)
        gone.add(transposition.outputs[0])
    return made.program()


def _transposed(x: Value, turned: dict[Value, Value], made: Rewrite, origin: str) -> Value:
    """Returns what a matrix is the transpose of, or a new transpose."""
    if x in turned:
        return made.current(turned[x])
    y = made.new(x.shape[::-1], x.dtype, x.strides[::-1], x)
    made.keep(Instruction(".T", (x,), {}, (y,), (), origin))
    return y


def _only_transpose(i: Instruction, uses: dict, results: set[Value]) -> Instruction | None:
    """Returns the transposition that alone uses a product of two matrices."""
    if not _is_of_matrices(i) or len(users := uses.get(i.outputs[0], [])) != 1 or users[0].name != ".T":
        return None
    (x,), (y,) = i.outputs, users[0].outputs
    is_viewed = any([v.of is x and v is not y for user in uses.get(y, ()) for v in user.outputs])
    return None if is_viewed or not results.isdisjoint((x, y)) else users[0]


def _is_of_matrices(i: Instruction) -> bool:
    return i.name == "matmul" and not i.kwargs and all([isinstance(x, Value) and x.ndim == 2 for x in i.args])
