"""Which instructions may raise an error because of the elements that they get, as eager code does there."""

from __future__ import annotations

from ...backends.device import CPU
from ...utils.nested import leaves
from .instruction import Instruction, Value
from .kernels import CHECKED
from .program import Program

# The positions of the indices that NumPy compares with the bounds.
_INDICES = {".getitem": 1, ".setitem": 1, "take": 1, "take_along_axis": 1, "put_along_axis": 1, "put": 1}
SOLVERS = {f"linalg.{name}" for name in ("inv", "solve", "cholesky", "eigh", "eigvalsh", "svd", "lstsq")}


def raising(program: Program) -> set[Instruction]:
    """Returns these instructions; none on a GPU, whose errors come later than what follows, in any order."""
    return {i for i in program.instructions if _may_raise(i)} if program.device is CPU else set()


def checking(program: Program) -> set[Instruction]:
    """Returns the instructions that have to run for their errors: on a GPU those that look at elements."""
    on_gpu = program.device is not CPU
    return {i for i in program.instructions if _checks(i)} if on_gpu else raising(program)


def _checks(i: Instruction) -> bool:
    return i.name == "check" or (i.name == "kernel" and i.args[0] in CHECKED)


def _may_raise(i: Instruction) -> bool:
    if i.name in SOLVERS or _checks(i):
        return True
    at = 1 if i.name.endswith(".at") else _INDICES.get(i.name)
    index = () if at is None else i.args[at : at + 1]
    return any([isinstance(x, Value) and x.dtype.kind in "iu" for x in leaves(index)])
