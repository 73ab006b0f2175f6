"""Computes a sum of all elements, as that of a loss, as sums of rows and the sum of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..program.instruction import Instruction
from ..program.program import Program
from .elementwise import is_step
from .rewriting import Rewrite

_LENGTHS = range(32, (1 << 16) + 1)  # of rows that are worth a loop
_ROWS = 8  # a loop shares them among the threads


def split_sums(program: Program) -> Program:
    """Returns the program with sums of an elementwise function's results in two steps: the loop that computes
    the elements computes the sums of their rows, and need not store them.

    %1 = exp(%0); %2 = sum(%1)     becomes     %1 = exp(%0); %3 = sum(%1, axis=1); %2 = sum(%3)
    """
    made, makers = Rewrite(program), program.makers()
    for i in program.instructions:
        if _is_sum_of_all(i) and i.args[0] in makers and is_step(makers[i.args[0]]):
            (x,) = i.args
            rows = made.new(x.shape[:-1], x.dtype)
            made.keep(i, kwargs={**i.kwargs, "axis": x.ndim - 1}, outputs=(rows,))
            i = replace(i, args=(rows,))
        made.keep(i)
    return made.program()


def _is_sum_of_all(i: Instruction) -> bool:
    has_options = any([value is not None and value is not False for value in i.kwargs.values()])
    if i.name != "sum" or has_options or len(i.args) != 1:
        return False
    x = i.args[0]
    fits = x.ndim > 1 and x.dtype == np.float32 and x.shape[-1] in _LENGTHS
    return fits and x.is_c_order and x.size >= _ROWS * x.shape[-1]
