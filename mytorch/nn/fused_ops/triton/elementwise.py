"""Elementwise kernels on the GPU: indices, loads, stores and launches."""

from __future__ import annotations

from collections.abc import Callable

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ....backends.device import RawArray
from .. import elementwise
from .launch import launch, require_dtypes
from .sizes import cdiv, next_power_of_2

BLOCK = 1024  # elements of a program: 8 for each of its 128 threads, which in half precision is one load


@triton.jit
def elements(n, BLOCK: tl.constexpr):
    """The indices of this program's elements, int64, and which of them exist."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return at, at < n


@triton.jit
def tile(rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The rows, int64, and columns of this program's tile, and which of its elements exist."""
    tiles = tl.cdiv(n, BLOCK)
    row = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    return row, column, (row < rows) & (column < n)


@triton.jit
def load32(pointer, at, inside):
    """Loads elements as float32."""
    return tl.load(pointer + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store(pointer, at, value, inside):
    """Stores float32 elements in the dtype of the array."""
    tl.store(pointer + at, value.to(pointer.dtype.element_ty), mask=inside)


def launcher(kernel: JITFunction, **meta: object) -> Callable:
    """Returns `start(*arrays and scalars, out)`, which launches the kernel with them and out's size."""

    def start(*args: object) -> None:
        n = args[-1].size
        launch(kernel, (cdiv(n, BLOCK),), *args, n, BLOCK=BLOCK, num_warps=4, **meta)

    return start


def row_launcher(kernel: JITFunction, **meta: object) -> Callable:
    """Returns `start(rows, n, *args)`, which launches the kernel on tiles of BLOCK elements: of several rows,
    or of a part of one."""

    def start(rows: int, n: int, *args: object) -> None:
        if not rows * n:
            return
        block = min(BLOCK, next_power_of_2(n))
        height = BLOCK // block
        grid = (cdiv(rows, height) * cdiv(n, block),)
        launch(kernel, grid, *args, rows, n, ROWS=height, BLOCK=block, num_warps=4, **meta)

    return start


def unary(
    x: RawArray, forward: JITFunction, backward: JITFunction, *scalars: float, save_result: bool = False,
    **meta: object,
) -> tuple:
    """Returns the result and the vjp of elementwise kernels, see `fused_ops.elementwise.unary`."""
    require_dtypes(x)
    forward, backward = launcher(forward, **meta), launcher(backward, **meta)
    return elementwise.unary(x, forward, backward, *scalars, save_result=save_result)
