"""Which instructions are functions of each element, in float32, that loops have."""

from __future__ import annotations

import numpy as np

from ..codegen.loop import EXPRESSIONS
from ..program.instruction import Instruction, Value

FLOAT, BOOL = np.dtype(np.float32), np.dtype(bool)
# Functions of bools; for all others NumPy makes numbers of them if another operand is one.
TAKE_BOOLS = {"where", "logical_and", "logical_or", "logical_not", ".copy", ".astype"}
_POWERS = (1, 2, 3, 4)  # that are products
_SCALAR = ("sin", "cos")  # in a compiled loop a call of the C library for each element: NumPy takes a tenth


def is_step(i: Instruction) -> bool:
    """Returns whether an instruction is a step of a loop."""
    dtypes, made = {x.dtype for x in i.inputs()}, [y.dtype for y in i.outputs]
    if not dtypes or len(made) != 1 or not dtypes | {*made} <= {FLOAT, BOOL}:
        return False
    if i.name == ".astype":
        return i.args[1:] == (FLOAT,) and not i.kwargs and dtypes == {BOOL}
    return not i.kwargs.keys() - {"order"} and all(map(_is_operand, i.args)) and _is_known(i, dtypes)


def _is_known(i: Instruction, dtypes: set[np.dtype]) -> bool:
    if i.name == "power":
        return i.args[1] in _POWERS and dtypes == {FLOAT}
    return i.name in EXPRESSIONS and i.name not in _SCALAR and _takes_bools(i, dtypes)


def _takes_bools(i: Instruction, dtypes: set[np.dtype]) -> bool:
    """Whether bools among the operands are what NumPy takes for bools or, with others, for numbers."""
    if i.name == "where":
        condition = i.args[0]
        return isinstance(condition, Value) and condition.dtype == BOOL and i.outputs[0].dtype == FLOAT
    if i.name.startswith("logical_"):
        return all([isinstance(x, Value) and x.dtype == BOOL for x in i.args])
    return i.name in (".copy", "equal", "not_equal") or FLOAT in dtypes


def _is_operand(x: object) -> bool:
    """Whether it is an array, or a number that doesn't promote float32."""
    if isinstance(x, np.generic):
        return x.dtype in (FLOAT, BOOL, np.float16)
    return isinstance(x, (Value, bool, int, float))
