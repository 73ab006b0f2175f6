"""Time the kernels' jobs, forward and backward; the same code for mytorch and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.clock import Clock
from benchmarks.gpu.jobs import PERIOD, GpuJob, jobs
from benchmarks.gpu.sizes import Size

ITEMSIZE = {"float32": 4, "float16": 2}


def job(name: str, size: Size, dtype: str) -> GpuJob:
    """The job of that name."""
    return next(job for job in jobs(size.kernels, ITEMSIZE[dtype]) if job.name == name)


def measure(
    library: Any,
    job: GpuJob,
    dtype: str,
    clock: Clock,
    functions: Any = None,
    compiled: Callable | None = None,
) -> dict:
    """{"forward": times, "total": times or None}: of the forward pass, and of forward and backward together.

    Args:
        library: mytorch or torch.
        functions: in place of `library.nn.functional`.
        compiled: applied to the function that is timed, such as torch.compile.
    """
    if job.build is not None:
        return {"forward": clock(job.build(library, "cuda")), "total": None}
    forward, total = passes(library, job, dtype, "cuda", functions, compiled)
    return {"forward": clock(forward), "total": None if total is None else clock(total)}


def passes(
    library: Any, job: GpuJob, dtype: str, where: str, functions: Any = None, compiled: Callable | None = None
) -> tuple[Callable, Callable | None]:
    """Callables that do the forward pass, and both passes; None if there is no gradient."""
    F = functions or library.nn.functional
    constants = [library.from_numpy(a).to(where) for a in job.constants]
    xs = [library.from_numpy(a).to(where).to(getattr(library, dtype)) for a in job.arrays()]
    if not job.no_grad:
        xs = [x.requires_grad_() for x in xs]

    def function(*arrays: Any) -> Any:
        return job.call(F, constants.__getitem__, *arrays)

    call = compiled(function) if compiled else function
    if job.no_grad:
        return _without_graph(library, call, xs), None
    results = _listed(call(*xs))
    block = np.random.default_rng(9).standard_normal(PERIOD, dtype=np.float32)
    gs = [library.from_numpy(np.resize(block, y.shape)).to(where).to(y.dtype) for y in results]

    def both() -> None:
        for x in xs:
            x.grad = None
        library.autograd.backward(_listed(call(*xs)), gs)

    return lambda: call(*xs), both


def _without_graph(library: Any, call: Callable, xs: list) -> Callable:
    def forward() -> Any:
        with library.no_grad():
            return call(*xs)

    return forward


def _listed(result: Any) -> list:
    return list(result) if isinstance(result, (tuple, list)) else [result]
