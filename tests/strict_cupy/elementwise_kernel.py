"""ElementwiseKernel: the arguments are checked as CuPy does; in place of the CUDA code runs what Python has
for a kernel of its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import graph
from .array import is_number, ndarray, raw


def check_range(x, low, high, has_ignored, ignored, error, word):
    """What the code of `mytorch.backends.gpu_errors` does."""
    x = x.astype(np.int64)
    bad = x[((x < low) | (x >= high)) & ~(has_ignored & (x == ignored))]
    if bad.size and not word[2]:
        word[...] = error, bad.flat[0], 1


def note_nonfinite(x, number, found):
    """What the code of `mytorch.accelerate.finite` does."""
    if not np.isfinite(x.astype(np.complex128)).all():
        found[number] = True


IN_PYTHON = {"mytorch_check_range": check_range, "mytorch_note_nonfinite": note_nonfinite}


class ElementwiseKernel:
    def __init__(
        self, in_params, out_params, operation, name="kernel", reduce_dims=True, preamble="", no_return=False,
        return_tuple=False, **kwargs,
    ):
        if any(p.split()[-1:] == ["i"] for p in f"{in_params},{out_params}".split(",")):
            raise ValueError("Can not use 'i' as a parameter name")
        self.name, self.no_return = name, no_return
        self._params = [p.split() for p in f"{in_params}, {out_params}".split(",") if p.strip()]
        self._inputs = len([p for p in in_params.split(",") if p.strip()])

    @graph.taped
    def __call__(self, *args: Any) -> None:
        if len(args) != len(self._params):
            raise TypeError(f"Wrong number of arguments for {self.name!r}: {len(args)}")
        if self.name not in IN_PYTHON or not self.no_return:
            raise NotImplementedError("the strict CuPy stand-in can't run CUDA kernels: add it to IN_PYTHON")
        given = [self._argument(k, p, x) for k, (p, x) in enumerate(zip(self._params, args, strict=True))]
        IN_PYTHON[self.name](*given)

    def _argument(self, k: int, param: list[str], x: Any) -> Any:
        *is_raw, dtype, _ = param
        if k >= self._inputs and not isinstance(x, ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        if isinstance(x, ndarray):
            if len(dtype) > 1 and x.dtype != np.dtype(dtype):
                raise TypeError(f"Type is mismatched. {param} {x.dtype}")
            return raw(x)
        if is_raw or not is_number(x):
            raise TypeError(f"Unsupported type {type(x)}")
        return np.dtype(dtype).type(x)  # raises where it doesn't fit
