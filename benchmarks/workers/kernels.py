"""Forward and backward of jobs: python -m benchmarks.workers.kernels kernels|SHAPES mytorch|torch"""

from __future__ import annotations

import importlib
import os
import sys
import time
from importlib.metadata import version
from typing import Any

from benchmarks.machine import openblas
from benchmarks.protocol import Step, serve

WARM_UP = 0.1  # seconds


def forward_step(library: Any, arrays: list, call: Any) -> Step:
    """A callable that does one forward pass, and returns a figure of it to compare."""
    F, tensor = library.nn.functional, library.from_numpy
    xs = [tensor(a) for a in arrays]

    def step() -> float:
        with library.no_grad():
            return call(F, tensor, *xs).reshape(-1)[0].item()

    return step


def training_step(library: Any, arrays: list, call: Any) -> Step:
    """A callable that does one forward and one backward pass, and returns a figure of both to compare."""
    F, tensor = library.nn.functional, library.from_numpy
    xs = [tensor(a).requires_grad_() for a in arrays]
    given = []  # the gradient that comes in from behind

    def step() -> float:
        for x in xs:
            x.grad = None
        y = call(F, tensor, *xs)
        given[:] = given or [tensor(gradient(tuple(y.shape)))]
        y.backward(given[0])
        return y.detach().reshape(-1)[0].item() + sum(x.grad.reshape(-1)[-1].item() for x in xs)

    return step


def prolonged(step: Step) -> Step:
    """The same step, for a while: threads that slept may find themselves on one core at first."""

    def steps() -> float:
        end = time.perf_counter() + WARM_UP
        result = step()
        while time.perf_counter() < end:
            result = step()
        return result

    return steps


def gradient(shape: tuple[int, ...]) -> Any:
    """Normal numbers; of a loss, as usual, 1."""
    import numpy as np  # after mytorch, which may choose OpenBLAS's kernels

    if not shape:
        return np.ones((), np.float32)
    return np.random.default_rng(9).standard_normal(shape, dtype=np.float32)


def describe(library: Any) -> dict:
    if library.__name__ == "torch":
        from benchmarks.workers.torch_gpt import blas

        library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        said = {"version": f"PyTorch {library.__version__}", "blas": blas()}
    else:
        said = {
            "version": f"mytorch {library.__version__}, NumPy {version('numpy')}",
            "blas": f"OpenBLAS, kernels {openblas()['core']}",
        }
    return said | {"threads": library.get_num_threads()}


def main(problem: str, name: str) -> None:
    library = importlib.import_module(name)  # before NumPy, as in a user's script: it may choose its kernels
    from benchmarks.conv_problem import SHAPES
    from benchmarks.kernel_problem import JOBS, REPEATS

    jobs = JOBS if problem == "kernels" else [shape.job() for shape in SHAPES[problem]]

    def start() -> list[Step]:
        steps = []
        for job in jobs:
            make = training_step if job.backward else forward_step
            step = make(library, job.arrays(), job.peer if name == "torch" and job.peer else job.call)
            steps += [prolonged(step), *[step] * (REPEATS - 1)]
        return steps

    serve(describe(library), start)


if __name__ == "__main__":
    main(*sys.argv[1:])
