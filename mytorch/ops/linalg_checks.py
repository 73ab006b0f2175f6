"""What the functions of `mytorch.linalg` share: their error, checks of matrices, calls of LAPACK."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.device import RawArray
from ..backends.dtypes import is_half, is_inexact
from ..core.tensor import Tensor


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """Raised where a matrix has no inverse or no Cholesky factor, or where LAPACK finds no result."""


def check_matrices(name: str, x: RawArray, square: bool = False) -> None:
    """Raises RuntimeError unless `x` is of (square) matrices; for the dtype, see `check_dtype`."""
    if x.ndim < 2:
        raise RuntimeError(
            f"linalg.{name}: The input tensor A must have at least 2 dimensions, got shape {list(x.shape)}"
        )
    check_dtype(name, x)
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, "
            f"but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )


def check_dtype(name: str, x: RawArray) -> None:
    """Raises NotImplementedError, a RuntimeError, for integers, bools and half precision."""
    if not is_inexact(x.dtype):
        raise NotImplementedError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {x.dtype}"
        )
    if is_half(x.dtype):
        raise NotImplementedError(
            f"linalg.{name}: Low precision dtypes not supported. Got {x.dtype}; use float32"
        )


def lapack(name: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Returns `function(*args, **kwargs)`, one of np.linalg; its error becomes a `LinAlgError`."""
    try:
        with _raising(args[0]):
            return function(*args, **kwargs)
    except LinAlgError:
        raise
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg.{name}: {error}") from None


def _raising(x: Any) -> Any:
    """CuPy raises no error for a singular matrix, unless it is told to."""
    if type(x).__module__.partition(".")[0] != "cupy":
        return contextlib.nullcontext()
    return importlib.import_module("cupyx").errstate(linalg="raise")


def transposed(x: RawArray) -> RawArray:
    """The matrices with rows and columns exchanged: a view."""
    return np.swapaxes(x, -1, -2)


def refuse_complex(name: str, x: Tensor | RawArray) -> None:
    """Raises NotImplementedError where a gradient's formula is for real matrices only."""
    if x.dtype.kind == "c":
        raise NotImplementedError(f"linalg.{name}: the gradient is not implemented for {x.dtype}")
