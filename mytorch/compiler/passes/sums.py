"""Computes a sum of all elements, as that of a loss, as sums of rows and the sum of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..program.instruction import Instruction, Value
from ..program.program import Program
from .loops import is_step

_LENGTHS = range(32, (1 << 16) + 1)  # of rows that are worth a loop
_ROWS = 8  # a loop shares them among the threads


def split_sums(program: Program) -> Program:
    """Returns the program with `sum(x)` as `sum(sum(x, axis=-1))` where x is an elementwise function: the
    loop that computes x computes the sums of its rows, and need not store it."""
    makers = {y: i for i in program.instructions for y in i.outputs}
    number = program.next_number()
    found = []
    for i in program.instructions:
        if _is_sum_of_all(i) and (maker := makers.get(i.args[0])) is not None and is_step(maker):
            (x,) = i.args
            strides = np.empty(x.shape[:-1], x.dtype).strides
            rows = Value(number, x.shape[:-1], strides, x.dtype)
            found.append(replace(i, kwargs={**i.kwargs, "axis": x.ndim - 1}, outputs=(rows,)))
            i, number = replace(i, args=(rows,)), number + 1
        found.append(i)
    return replace(program, instructions=found)


def _is_sum_of_all(i: Instruction) -> bool:
    has_options = any([value is not None and value is not False for value in i.kwargs.values()])
    if i.name != "sum" or has_options or len(i.args) != 1:
        return False
    x = i.args[0]
    fits = x.ndim > 1 and x.dtype == np.float32 and x.shape[-1] in _LENGTHS
    return fits and x.is_c_order and x.size >= _ROWS * x.shape[-1]
