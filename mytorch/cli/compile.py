"""mytorchrun compile: compiles the kernels of the CPU."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import numpy as np

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.fused_ops import registry
from mytorch.nn.fused_ops.background import stamp
from mytorch.nn.fused_ops.kernels import IN_ADVANCE
from mytorch.utils.parent_death import exit_with_parent

HELP = "compile the kernels of the CPU in advance, for an image or a cluster"

SMALL, LARGE = 64, 4096  # rows of 32: less than threads are worth, and more


def differentiate(function: Callable, *shapes: tuple[int, ...]) -> None:
    """Calls a function of tensors of these shapes, and its backward pass."""
    y = function(*[mytorch.randn(shape, requires_grad=True) for shape in shapes])
    for out in y if isinstance(y, tuple) else (y,):
        if out.requires_grad:
            out.backward(mytorch.ones_like(out), retain_graph=True)


def elementwise(*functions: Callable) -> None:
    for function in functions:
        for rows in (SMALL, LARGE):
            differentiate(function, (rows, 32))
            with mytorch.no_grad():
                function(mytorch.randn(rows, 32))


def gemm() -> None:
    """Products, of matrices, of stacks of them and with a vector, and sums of columns."""
    F.relu(mytorch.randn(SMALL, 32))  # starts the pool of threads
    for m, k, n in ((1, 512, 512), (256, 256, 256)):
        for x, y in (((m, k), (k, n)), ((8, m, k), (8, k, n)), ((8, m, k), (k, n))):
            differentiate(mytorch.matmul, x, y)
            with mytorch.no_grad():
                mytorch.randn(x) @ mytorch.randn(*y[:-2], n, k).transpose(-1, -2)
    for rows in (SMALL, LARGE):
        differentiate(lambda x, bias: x + bias, (rows, 32), (32,))


def linear() -> None:
    for rows in (1, SMALL, LARGE):
        for bias in ((), ((32,),)):
            for function in (F.linear, *_activated(bias)):
                differentiate(function, (rows, 32), (32, 32), *bias)
                with mytorch.no_grad():
                    function(*[mytorch.randn(shape) for shape in ((1, rows, 32), (32, 32), *bias)])


def _activated(bias: tuple) -> list[Callable]:
    def activated(name):
        return lambda x, weight, *rest: F.linear_activation(x, weight, *rest or (None,), name)

    return [activated(name) for name in ("gelu", "relu")]


def layer_norm() -> None:
    for parameters in ((), ((32,),), ((32,), (32,))):
        for rows in (SMALL, LARGE):
            differentiate(lambda x, *p: F.layer_norm(x, (32,), *p), (rows, 32), *parameters)
            differentiate(lambda x, y, *p: F.add_layer_norm(x, y, (32,), *p), *[(rows, 32)] * 2, *parameters)
            if len(parameters) < 2:
                differentiate(lambda x, *p: F.rms_norm(x, (32,), *p), (rows, 32), *parameters)


def attention() -> None:
    for length in (8, 128):
        differentiate(lambda qkv: F.self_attention(qkv, 2, is_causal=True), (4, length, 96))
        differentiate(F.scaled_dot_product_attention, *[(2, 2, length, 16)] * 3)


def cached_attention() -> None:
    with mytorch.no_grad():
        for batch in (1, 4):
            caches = [mytorch.zeros(batch, 2, 256, 16) for _ in range(2)]
            F.cached_self_attention(mytorch.randn(batch, 8, 96), 2, *caches, 0)
            for position in (8, 200):
                F.cached_self_attention(mytorch.randn(batch, 1, 96), 2, *caches, position)


def cross_entropy() -> None:
    for rows in (SMALL, LARGE):
        target = mytorch.tensor(np.arange(rows) % 32)
        differentiate(lambda x, target=target: F.cross_entropy(x, target), (rows, 32))
        differentiate(lambda x, target=target: F.cross_entropy(x, target, ignore_index=-1), (rows, 32))


def embedding() -> None:
    for rows in (SMALL, LARGE):
        index = mytorch.tensor(np.arange(rows).reshape(4, -1) % 50)
        differentiate(lambda weight, index=index: F.embedding(index, weight), (50, 32))


def softmax() -> None:
    for rows in (1, SMALL, LARGE):
        for function in (F.softmax, F.log_softmax):
            differentiate(lambda x, function=function: function(x, -1), (rows, 32))


def norm() -> None:
    for scale in (1e-3, 1e3):
        p = mytorch.nn.Parameter(mytorch.randn(1 << 17))
        p.grad = mytorch.full((1 << 17,), scale)
        mytorch.nn.utils.clip_grad_norm_([p], 1.0)


def step(*makers: Callable) -> None:
    """Updates a few parameters and many, by optimizers that clip and that don't."""
    for make in makers:
        for rows in (SMALL, LARGE):
            optimizer = make([mytorch.nn.Parameter(mytorch.randn(rows, 32))])
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad = mytorch.ones_like(p)
            optimizer.step()
            optimizer.clip_grad_norm(1.0)
            optimizer.step()


def adam() -> None:
    optim = mytorch.optim
    step(optim.Adam, optim.AdamW)
    step(lambda p: optim.Adam(p, weight_decay=0.1), lambda p: optim.AdamW(p, amsgrad=True))


def sgd() -> None:
    SGD = mytorch.optim.SGD
    step(lambda p: SGD(p, 0.1), lambda p: SGD(p, 0.1, 0.9), lambda p: SGD(p, 0.1, 0.9, weight_decay=0.1))


WARM_UPS: dict[str, Callable[[], None]] = {
    "gemm": gemm,
    "activations": lambda: elementwise(F.sigmoid, F.silu, F.tanh),
    "adam": adam,
    "attention": attention,
    "cached_attention": cached_attention,
    "cross_entropy": cross_entropy,
    "dropout": lambda: elementwise(lambda x: F.dropout(x, 0.1)),
    "embedding": embedding,
    "gelu": lambda: elementwise(F.gelu, lambda x: F.gelu(x, "tanh")),
    "layer_norm": layer_norm,
    "linear": linear,
    "norm": norm,
    "rectifiers": lambda: elementwise(F.relu, lambda x: F.leaky_relu(x)),
    "sgd": sgd,
    "softmax": softmax,
}


def compile_file(file: str) -> None:
    """Compiles the kernels of a file by calling them, and leaves the stamp that says so."""
    WARM_UPS[file]()
    path = stamp(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _serve(parent: int) -> int:
    """Compiles the files that a program names on the standard input, one by one, while the program lives.

    It ends within a second of the program, also while it compiles or waits for another process that does.
    """
    exit_with_parent(lambda: os.getppid() != parent)
    if hasattr(os, "nice"):
        os.nice(10)
    for line in sys.stdin:
        compile_file(line.strip())
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mytorchrun compile`."""
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"all by default: {', '.join(IN_ADVANCE)}")


def run(options: argparse.Namespace) -> int:
    """Compiles; returns the exit status."""
    if options.files[:1] == ["-"]:  # in the background, with the parent's number
        return _serve(int(options.files[1]))
    files = options.files or IN_ADVANCE
    unknown = [file for file in files if file not in WARM_UPS]
    if unknown:
        print(f"no such kernels: {', '.join(unknown)}; there are {', '.join(IN_ADVANCE)}", file=sys.stderr)
        return 2
    if reason := registry.why_not("cpu"):
        print(reason, file=sys.stderr)
        return 1
    os.environ["MYTORCH_COMPILE"] = "wait"
    start = time.monotonic()
    for i, file in enumerate(files, 1):
        print(f"{i}/{len(files)} {file}", flush=True)
        compile_file(file)
    print(f"{len(files)} files of kernels are compiled ({time.monotonic() - start:.0f} s)")
    return 0
