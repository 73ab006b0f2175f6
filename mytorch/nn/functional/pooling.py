"""Checks of the arguments of pooling functions."""

from __future__ import annotations

from collections.abc import Sequence

from .types import IntOrInts
from .windows import Ints, ntuple, output_size


def read_window(
    name: str, dims: int, kernel_size: IntOrInts, stride: IntOrInts | None, padding: IntOrInts,
    dilation: IntOrInts,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Returns (kernel_size, stride, padding, dilation), each with one int per dim.

    Raises:
        RuntimeError: not positive, or padding larger than half a window.
        TypeError: not ints.
    """
    kernel = ntuple(kernel_size, dims, f"{name}(): kernel_size", 1)
    stride = ntuple(kernel if stride in (None, (), []) else stride, dims, f"{name}(): stride", 1)
    padding = ntuple(padding, dims, f"{name}(): padding", 0)
    dilation = ntuple(dilation, dims, f"{name}(): dilation", 1)
    if any([p > (d * (k - 1) + 1) // 2 for k, p, d in zip(kernel, padding, dilation, strict=True)]):
        raise RuntimeError(
            f"{name}(): padding should be at most half of the effective kernel size, but got "
            f"padding={padding}, kernel_size={kernel}, dilation={dilation}"
        )
    return kernel, stride, padding, dilation


def window_counts(
    name: str, shape: Sequence[int], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    ceil_mode: bool,
) -> Ints:
    """Returns the number of windows in each of the last dims.

    Raises:
        RuntimeError: a wrong number of dims, no elements, or too few for one window.
    """
    dims = len(kernel)
    check_shape(name, dims, shape, shape[-dims - 1 :])
    dim = zip(shape[-dims:], kernel, stride, padding, dilation, strict=True)
    counts = tuple([output_size(*args, ceil_mode) for args in dim])
    if min(counts) < 1:
        raise RuntimeError(f"{name}(): input of shape {tuple(shape)} is too small: output size {counts}")
    return counts


def check_shape(name: str, dims: int, shape: Sequence[int], sizes: Sequence[int]) -> None:
    """Raises RuntimeError unless `shape` is (N, C, n…) or (C, n…) with `dims` dims n, and no size is 0."""
    if len(shape) not in (dims + 1, dims + 2) or 0 in sizes:
        raise RuntimeError(
            f"{name}(): expected a {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got {tuple(shape)}"
        )


def read_output_size(name: str, dims: int, shape: Sequence[int], output_size: IntOrInts) -> Ints:
    """Returns the number of windows of an adaptive pooling in each of the last dims.

    Raises:
        RuntimeError: negative, or a wrong number of sizes.
        TypeError: not ints; None, which preserves a dim, is valid for several dims only.
        ValueError: not fewer sizes than dims of the input.
    """
    several = isinstance(output_size, Sequence)
    if several and dims > 1:
        if len(output_size) >= len(shape):
            raise ValueError(f"{name}(): input of shape {tuple(shape)} has too few dims for {output_size}")
        n = shape[len(shape) - len(output_size) :]
        output_size = [n[i] if size is None else size for i, size in enumerate(output_size)]
    counts = ntuple(output_size, dims, f"{name}(): output_size", 0)
    if several and len(output_size) != dims:
        raise RuntimeError(f"{name}(): output_size must have {dims} elements, got {output_size}")
    return counts
