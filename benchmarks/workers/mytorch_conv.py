"""Forward and backward of convolutions in mytorch."""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import version

import mytorch  # before NumPy, as in a user's script: the import may choose OpenBLAS's kernels
import mytorch.nn.functional as F
from benchmarks.conv_problem import REPEATS, SHAPES, Shape, arrays
from benchmarks.machine import openblas
from benchmarks.protocol import Step, serve


def training_step(shape: Shape) -> Step:
    """A callable that does one forward and one backward pass, and returns a figure of both to compare."""
    x, w, g = map(mytorch.from_numpy, arrays(shape))

    def step(x: mytorch.Tensor, w: mytorch.Tensor) -> float:
        x.grad = w.grad = None
        y = F.conv2d(x, w, None, shape.stride, shape.padding, 1, shape.groups)
        y.backward(g)
        return (y[0, 0, 0, 0].detach() + x.grad[0, 0, 0, 0] + w.grad[0, 0, 0, 0]).item()

    return partial(step, x.requires_grad_(), w.requires_grad_())


def main(shapes: str) -> None:
    blas = openblas()
    about = {
        "version": f"mytorch {mytorch.__version__}, NumPy {version('numpy')}",
        "blas": f"OpenBLAS, kernels {blas['core']}",
        "threads": blas["threads"],
    }
    serve(about, lambda: [step for shape in SHAPES[shapes] for step in [training_step(shape)] * REPEATS])


if __name__ == "__main__":
    main(*sys.argv[1:])
