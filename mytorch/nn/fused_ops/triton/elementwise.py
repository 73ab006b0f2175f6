"""What the kernels of single elements share on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from .. import elementwise
from .launch import launch, require_dtypes

BLOCK = 1024  # elements of a program: 8 for each of its 128 threads, which in half precision is one load


@triton.jit
def elements(n, BLOCK: tl.constexpr):
    """The numbers of this program's elements, in 64 bits, and which of them there are."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return at, at < n


@triton.jit
def tile(rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The rows, in 64 bits, and columns of this program's tile, and which elements of it there are."""
    parts = tl.cdiv(n, BLOCK)
    row = (tl.program_id(0) // parts).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) % parts * BLOCK + tl.arange(0, BLOCK)[None, :]
    return row, column, (row < rows) & (column < n)


@triton.jit
def single(pointer, at, inside):
    """Elements in float32."""
    return tl.load(pointer + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store(pointer, at, value, inside):
    """Put float32 elements where they belong, in the dtype that is there."""
    tl.store(pointer + at, value.to(pointer.dtype.element_ty), mask=inside)


def starter(kernel: Any, **meta: Any) -> Callable:
    """`start(*arrays and numbers, out)`: the kernel, which gets them and the number of elements of `out`."""

    def start(*args: Any) -> None:
        n = args[-1].size
        launch(kernel, (triton.cdiv(n, BLOCK),), *args, n, BLOCK=BLOCK, num_warps=4, **meta)

    return start


def row_starter(kernel: Any, **meta: Any) -> Callable:
    """The same for kernels that also get the number of rows and of their elements, and work on tiles of BLOCK
    elements: of several rows, or of a part of one."""

    def start(rows: int, n: int, *args: Any) -> None:
        if not rows * n:
            return
        block = min(BLOCK, triton.next_power_of_2(n))
        height = BLOCK // block
        grid = (triton.cdiv(rows, height) * triton.cdiv(n, block),)
        launch(kernel, grid, *args, rows, n, ROWS=height, BLOCK=block, num_warps=4, **meta)

    return start


def unary(
    x: Any, forward: Any, backward: Any, *numbers: Any, keep_result: bool = False, **meta: Any
) -> tuple:
    """The result and the vjp of kernels of single elements, see `fused_ops.elementwise`."""
    require_dtypes(x)
    start = functools.partial(starter, **meta)
    return elementwise.unary(x, start(forward), start(backward), *numbers, keep_result=keep_result)
