"""The reductions of collectives."""

from __future__ import annotations

import enum

import numpy as np


class ReduceOp(enum.Enum):
    """The reduction of the values of several ranks.

    AVG is the sum divided by the number of ranks, for floats only. Integers wrap around; the sum of bools is
    "any", their product "all". Half precision (float16, and bfloat16 of ml_dtypes) is reduced in float32 on
    the CPU and rounded once at the end; NCCL reduces it in half precision, and rounds at every step.
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


def check_op(function: str, op: ReduceOp, dtype: np.dtype) -> None:
    """Checks that `op` is defined for a dtype.

    Raises:
        TypeError: `op` is not a ReduceOp.
        ValueError: it isn't defined for `dtype`.
    """
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{function}(): op is a ReduceOp, such as ReduceOp.SUM, got {op!r}")
    if (
        (dtype.kind not in "biufc" and not is_bfloat16(dtype))
        or (op in _BITWISE and dtype.kind not in "iub")
        or (op is ReduceOp.AVG and not is_floating(dtype))
        or (op in (ReduceOp.MIN, ReduceOp.MAX) and dtype.kind == "c")
    ):
        raise ValueError(f"{function}(): ReduceOp.{op.name} is not defined for {dtype}")


def is_bfloat16(dtype: np.dtype) -> bool:
    return dtype.name == "bfloat16"  # of ml_dtypes: NumPy has none


def is_floating(dtype: np.dtype) -> bool:
    return dtype.kind in "fc" or is_bfloat16(dtype)


def reduction_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which values are reduced on the CPU: float32 for half precision."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and is_floating(dtype) else dtype
