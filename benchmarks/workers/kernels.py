"""Forward and backward of jobs: python -m benchmarks.workers.kernels kernels|SHAPES mytorch|torch"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import Step, about_mytorch, serve

WARM_UP = 0.1  # seconds
Passes = Callable[[], tuple[Sequence[Any], Sequence[Any]]]  # returns the results, and what has gradients


def forward_pass(library: Any, arrays: list, call: Any) -> Passes:
    """A callable that does one forward pass."""
    F, tensor = library.nn.functional, library.from_numpy
    xs = [tensor(a) for a in arrays]

    def run() -> tuple:
        with library.no_grad():
            return _several(call(F, tensor, *xs)), ()

    return run


def training_pass(library: Any, arrays: list, call: Any) -> Passes:
    """A callable that does one forward and one backward pass."""
    F, tensor = library.nn.functional, library.from_numpy
    xs = [tensor(a).requires_grad_() for a in arrays]
    given = []  # the gradients that come in from behind

    def run() -> tuple:
        for x in xs:
            x.grad = None
        ys = _several(call(F, tensor, *xs))
        given[:] = given or [tensor(gradient(tuple(y.shape))) for y in ys]
        library.autograd.backward(ys, given)
        return ys, xs

    return run


def _several(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def step(passes: Passes) -> Step:
    """The passes and nothing else: the figure is 0, as that of each first step is compared already."""

    def once() -> float:
        passes()
        return 0.0

    return once


def first_step(passes: Passes) -> Step:
    """The same, for a while: threads that slept may find themselves on one core at first.

    It returns a figure of all results to compare.
    """

    def steps() -> float:
        end = time.perf_counter() + WARM_UP
        ys, xs = passes()
        while time.perf_counter() < end:
            ys, xs = passes()
        return sum(y.detach().reshape(-1)[0].item() for y in ys) + sum(
            x.grad.reshape(-1)[-1].item() for x in xs
        )

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
        about = {"version": f"PyTorch {library.__version__}", "blas": blas()}
    else:
        about = about_mytorch()
    return about | {"threads": library.get_num_threads()}


def main(problem: str, name: str) -> None:
    library = importlib.import_module(name)  # before NumPy, as in a user's script: it may choose its kernels
    from benchmarks.conv import SHAPES
    from benchmarks.kernel_problem import JOBS, REPEATS

    jobs = JOBS if problem == "kernels" else [shape.job() for shape in SHAPES[problem]]

    def start() -> list[Step]:
        steps = []
        for job in jobs:
            make = training_pass if job.backward else forward_pass
            passes = make(library, job.arrays(), job.peer if name == "torch" and job.peer else job.call)
            steps += [first_step(passes), *[step(passes)] * (REPEATS - 1)]
        return steps

    serve(describe(library), start)


if __name__ == "__main__":
    main(*sys.argv[1:])
