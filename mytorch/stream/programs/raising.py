"""Which instructions may raise an error because of the elements that they get, as eager code does there."""

from __future__ import annotations

from ...backends.device import CPU
from .instruction import Instruction, Value
from .kernels import CHECKED
from .nested import leaves
from .program import Program

# The positions of the indices that NumPy compares with the bounds.
_INDICES = {".getitem": 1, ".setitem": 1, "take": 1, "take_along_axis": 1, "put_along_axis": 1, "put": 1}
SOLVERS = {f"linalg.{name}" for name in ("inv", "solve", "cholesky", "eigh", "eigvalsh", "svd", "lstsq")}


def raising(program: Program) -> set[Instruction]:
    """Returns these instructions; none on a GPU, which doesn't look at elements."""
    return {i for i in program.instructions if _may_raise(i)} if program.device is CPU else set()


def _may_raise(i: Instruction) -> bool:
    if i.name == "check" or i.name in SOLVERS or (i.name == "kernel" and i.args[0] in CHECKED):
        return True
    at = 1 if i.name.endswith(".at") else _INDICES.get(i.name)
    index = () if at is None else i.args[at : at + 1]
    return any([isinstance(x, Value) and x.dtype.kind in "iu" for x in leaves(index)])
