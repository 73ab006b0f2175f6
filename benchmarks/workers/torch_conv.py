"""Forward and backward of convolutions in PyTorch, eager."""

from __future__ import annotations

import os
import sys
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.conv_problem import REPEATS, SHAPES, Shape, arrays
from benchmarks.protocol import Step, serve
from benchmarks.workers.torch_gpt import blas


def training_step(shape: Shape) -> Step:
    """A callable that does one forward and one backward pass, and returns a figure of both to compare."""
    x, w, g = map(torch.from_numpy, arrays(shape))

    def step(x: torch.Tensor, w: torch.Tensor) -> float:
        x.grad = w.grad = None
        y = F.conv2d(x, w, None, shape.stride, shape.padding, 1, shape.groups)
        y.backward(g)
        return (y[0, 0, 0, 0] + x.grad[0, 0, 0, 0] + w.grad[0, 0, 0, 0]).item()

    return partial(step, x.requires_grad_(), w.requires_grad_())


def main(shapes: str) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    about = {"version": f"PyTorch {torch.__version__}", "blas": blas(), "threads": torch.get_num_threads()}
    serve(about, lambda: [step for shape in SHAPES[shapes] for step in [training_step(shape)] * REPEATS])


if __name__ == "__main__":
    main(*sys.argv[1:])
