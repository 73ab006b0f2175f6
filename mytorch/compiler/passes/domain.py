"""The domain of a loop: which arrays it can treat, and which of their dims."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...utils.nested import leaves
from ..codegen.loop import COLUMN, FULL, ROW, SCALAR
from ..program.instruction import Instruction, Value
from .elementwise import BOOL, FLOAT, is_step

REDUCTIONS = {
    "sum": "sum", "add.reduce": "sum", "max": "max", "maximum.reduce": "max", "min": "min",
    "minimum.reduce": "min", "mean": "mean",
}


class Domain(NamedTuple):
    """The rows of a loop and their length: the last dim of its arrays, and all dims before it."""

    rows: int
    n: int

    @property
    def size(self) -> int:
        return self.rows * self.n

    def kind_of(self, x: Value) -> str | None:
        """Returns how NumPy would broadcast an array in the domain; None if it wouldn't."""
        if x.dtype not in (FLOAT, BOOL):
            return None
        if x.size == 1:
            return SCALAR if self.size != 1 else FULL
        if x.size == self.size and x.shape[-1] == self.n:
            return FULL
        if x.size == self.rows and x.shape[-1] == 1:
            return ROW
        return COLUMN if x.size == self.n == x.shape[-1] else None

    def is_index(self, x: object) -> bool:
        """Returns whether an operand has an index for each row."""
        return isinstance(x, Value) and x.dtype == np.int64 and x.shape in ((self.rows,), (self.rows, 1))


def domain_of(i: Instruction) -> Domain | None:
    """Returns the domain of a loop that begins with this instruction; None if none does."""
    if len(i.outputs) != 1:
        return None
    shape = i.outputs[0].shape
    if i.name in REDUCTIONS and i.args and isinstance(i.args[0], Value):
        shape = i.args[0].shape
    elif not is_step(i):
        return None
    size = int(np.prod(shape, dtype=np.int64))
    return Domain(size // shape[-1], shape[-1]) if shape and size else None


def reduced_dims(i: Instruction) -> list[int]:
    """Returns the dims that a reduction without further options is over; none if it has such."""
    x = i.args[0]
    axis = i.kwargs.get("axis", i.args[1] if len(i.args) > 1 else 0 if "." in i.name else None)
    extra = {name for name, v in i.kwargs.items() if v is not None} - {"axis", "keepdims"}
    if not x.shape or extra or len(i.args) > 2:
        return []
    return sorted([a % x.ndim for a in leaves(axis) if a is not None])
