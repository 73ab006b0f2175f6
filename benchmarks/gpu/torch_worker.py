"""The process that measures PyTorch, the peer: it answers the same items as `worker`, as far as it can."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import peers, times, torch_training
from benchmarks.gpu.clock import Clock
from benchmarks.gpu.parity import case_of, relative_error, size_of
from benchmarks.gpu.sizes import SIZES, Size
from benchmarks.gpu.stream import serve
from tests.triton.cases import CONSTANT
from tests.triton.harness import incoming

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def about() -> dict[str, Any]:
    """Versions; an exception without a GPU."""
    if DEVICE == "cpu":
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU")
    return {"pytorch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def clock(size: Size) -> Clock:
    """The clock for PyTorch's work."""
    count = size.flushed or 4 * torch.cuda.get_device_properties(0).L2_cache_size
    buffer = torch.empty(count, dtype=torch.uint8, device=DEVICE)
    return Clock(torch.cuda, functools.partial(buffer.fill_, 0), size.effort)


def kernel_time(size: str, job: str, dtype: str, compiled: bool) -> dict:
    torch._dynamo.reset()
    compile = functools.partial(torch.compile, dynamic=False) if compiled else None
    found = times.job(job, SIZES[size], dtype)
    return times.measure(torch, found, dtype, clock(SIZES[size]), functions=peers, compiled=compile)


def compare(kernel: str, table: str, row: int, dtype: str) -> dict:
    """PyTorch's own errors for a case: in that dtype, against itself in float64, on the same numbers.

    Returns:
        {"error": …, "gradient_error": …}, or {"missing": why PyTorch can't do it}.
    """
    args, kwargs = case_of(kernel, table, row)
    if kernel == "dropout" or kwargs.get("dropout_p"):
        return {"missing": "it drops other elements"}
    function = getattr(peers, kernel, None)
    if function is None:
        return {"missing": "there is no such function"}
    given = [_given(a, dtype) for a in args]
    options = {name: _given(a, dtype) for name, a in kwargs.items()}
    try:
        want, want_grads = _results(function, given, options, kernel, dtype, torch.float64)
        got, grads = _results(function, given, options, kernel, dtype, getattr(torch, dtype))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError, IndexError) as error:
        torch.cuda.synchronize() if DEVICE == "cuda" else None  # not after an illegal address
        return {"missing": str(error).splitlines()[0] if str(error) else type(error).__name__}
    return {
        "size": size_of(args),
        "error": max(map(_error, got, want), default=0.0),
        "gradient_error": max(map(_error, grads, want_grads), default=None),
    }


def _given(a: Any, dtype: str) -> Any:
    """An argument, its numbers rounded to the dtype."""
    if not isinstance(a, np.ndarray):
        return a
    tensor = torch.from_numpy(a).to(DEVICE)
    return tensor.to(getattr(torch, dtype)) if a.dtype == np.float32 else tensor


def _results(
    function: Any, args: list, kwargs: dict, kernel: str, dtype: str, computed: torch.dtype
) -> tuple[list, list]:
    """Outputs and gradients of a case in the dtype `computed`, for incoming gradients rounded to `dtype`."""
    args = [_cast(a, computed, kernel not in CONSTANT) for a in args]
    kwargs = {name: _cast(a, computed, False) for name, a in kwargs.items()}
    result = function(*args, **kwargs)
    outputs = list(result) if isinstance(result, tuple) else [result]
    gs = [torch.from_numpy(np.asarray(g, "float64")).to(DEVICE) for g in incoming(outputs, "float64")]
    with_graph = [(y, g.to(getattr(torch, dtype)).to(y.dtype)) for y, g in zip(outputs, gs, strict=True)]
    with_graph = [(y, g) for y, g in with_graph if y.requires_grad]
    if with_graph:
        torch.autograd.backward(*map(list, zip(*with_graph, strict=True)))
    grads = [a.grad for a in args if isinstance(a, torch.Tensor) and a.grad is not None]
    return [y.detach() for y in outputs], grads


def _cast(a: Any, dtype: torch.dtype, grad: bool) -> Any:
    if not isinstance(a, torch.Tensor) or not a.is_floating_point():
        return a
    return a.detach().to(dtype, copy=True).requires_grad_(grad)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return relative_error(got.double().cpu().numpy(), want.double().cpu().numpy())


def train(size: str, compiled: bool) -> dict:
    return torch_training.train(SIZES[size], compiled, DEVICE)


def train_half(size: str) -> dict:
    return torch_training.train_half(SIZES[size], DEVICE)


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.modules.setdefault("cupy", None)  # mytorch is here for the cases only, and leaves the GPU alone
    serve(
        {
            "about": about, "kernel_time": kernel_time, "compare": compare, "train": train,
            "train_half": train_half,
        },
        works=lambda: torch.cuda.synchronize() if DEVICE == "cuda" else None,
    )  # fmt: skip
