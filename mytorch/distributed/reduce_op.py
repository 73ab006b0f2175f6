"""The reductions."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class ReduceOp(enum.Enum):
    """How the values of several ranks become one.

    AVG is the sum divided by the number of ranks, of floats alone. Integers wrap around; the sum of bools is
    "any", their product "all". Halves (float16, and the bfloat16 of ml_dtypes) are reduced in float32 on the
    CPU and rounded once at the end; NCCL reduces them in their own dtype, and rounds at every step.
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


_BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def check_op(where: str, op: Any, dtype: np.dtype) -> None:
    """Can values of `dtype` be reduced so?

    Raises:
        TypeError: `op` is not a ReduceOp.
        ValueError: they can't.
    """
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{where}(): op is a ReduceOp, such as ReduceOp.SUM, got {op!r}")
    if (
        (dtype.kind not in "biufc" and not is_bfloat16(dtype))
        or (op in _BITWISE and dtype.kind not in "iub")
        or (op is ReduceOp.AVG and not is_floating(dtype))
        or (op in (ReduceOp.MIN, ReduceOp.MAX) and dtype.kind == "c")
    ):
        raise ValueError(f"{where}(): ReduceOp.{op.name} is not defined for {dtype}")


def is_bfloat16(dtype: np.dtype) -> bool:
    return dtype.name == "bfloat16"  # of ml_dtypes: NumPy has none of its own


def is_floating(dtype: np.dtype) -> bool:
    return dtype.kind in "fc" or is_bfloat16(dtype)


def math_dtype(dtype: np.dtype) -> np.dtype:
    """What values of `dtype` are summed in on the CPU: float32 for the halves."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and is_floating(dtype) else dtype
