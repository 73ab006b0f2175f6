"""Random tensors. Without `generator=` they are drawn from the default generator of the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import DeviceLike, RawArray, device_of_new, in_kind_of, on
from ..backends.dtypes import DTypeLike
from ..core.op import op
from ..core.tensor import Tensor, from_raw, raw_of
from ..core.upcast import upcast
from ..random import Generator, generator_on
from .bounds import require_all
from .create import same_kind, size_argument, size_of
from .inplace import recorded, write
from .scalars import integer

__all__ = [
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "rand_like", "randn_like", "randint_like",
]

BLOCK = 1 << 18  # elements that are drawn at a time

# Draws of raw arrays.


def uniform(shape: tuple, dtype: np.dtype, rng: np.random.Generator) -> RawArray:
    """Floats in [0, 1)."""
    if dtypes.is_half(dtype):  # a multiple of 2 ** -11, or 2 ** -8, which rounding can't turn into 1
        steps = 2 ** (dtypes.finfo(dtype).nmant + 1)
        return (np.floor(rng.random(shape, dtype=np.float32) * steps) / steps).astype(dtype)
    return rng.random(shape, dtype=_floating(dtype, "uniform"))


def standard_normal(shape: tuple, dtype: np.dtype, rng: np.random.Generator) -> RawArray:
    """Floats of mean 0 and variance 1."""
    drawn = dtypes.float32 if dtypes.is_half(dtype) else _floating(dtype, "normal")
    return rng.standard_normal(shape, dtype=drawn).astype(dtype, copy=False)


def integers(low: int, high: int, shape: tuple, dtype: np.dtype, rng: np.random.Generator) -> RawArray:
    """Integers in [low, high), which the dtype must hold."""
    low, high = integer(low, "random integers"), integer(high, "random integers")
    if low >= high:
        raise RuntimeError(f"random integers: the range is empty, from {low} to {high}")
    least, most = _range_of(dtype)
    if low < least or high - 1 > most:
        raise RuntimeError(f"random integers from {low} to {high - 1} are out of bounds for {dtype}")
    return rng.integers(low, high, size=shape, dtype=np.int64).astype(dtype, copy=False)


def _range_of(dtype: np.dtype) -> tuple[int, int]:
    """The integers that a dtype holds exactly, as far as they are drawn here."""
    if dtypes.is_floating_point(dtype):
        limit = 2 ** (dtypes.finfo(dtype).nmant + 1)
        return -limit, limit
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind not in "iu":
        raise NotImplementedError(f"random integers are not implemented for dtype {dtype}")
    return np.iinfo(dtype).min, min(np.iinfo(dtype).max, 2**63 - 1)


def _floating(dtype: np.dtype, name: str) -> np.dtype:
    if not dtypes.is_floating_point(dtype):
        raise NotImplementedError(f"{name} random numbers are not implemented for dtype {dtype}")
    return dtype


def _scaled(draw: Callable, scale: float, shift: float) -> Callable:
    """`draw`, times `scale` plus `shift`; in float32 for half precision."""
    return lambda *how: upcast(draw(*how)) * float(scale) + float(shift)


def tensor_argument(x: object, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, got {type(x).__name__}")
    return x


def _check_std(std: RawArray | float, name: str) -> None:
    text = f"{name}(): std must not be negative"
    require_all(np.greater_equal(std, 0), text, found=lambda: std if np.ndim(std) == 0 else np.min(std))


def _check_probability(p: RawArray | float, name: str) -> None:
    def found():
        return p if np.ndim(p) == 0 else f"{np.min(p)} to {np.max(p)}"

    valid = np.logical_and(np.greater_equal(p, 0), np.less_equal(p, 1))  # refuses NaN, too
    require_all(valid, f"{name}(): probabilities lie in [0, 1]", found=found)


# Functions.


def _new(
    draw: Callable, size: tuple, dtype: DTypeLike, device: DeviceLike, generator: Generator | None,
    requires_grad: bool,
) -> Tensor:
    """The tensor `draw(size, dtype, rng)`, on the device."""
    target = device_of_new(device)
    rng = generator_on(target, generator).rng
    with on(target):
        out = from_raw(in_kind_of(draw(size, dtypes.as_dtype(dtype), rng), target))
    return out.requires_grad_() if requires_grad else out


def rand(
    *size: int | Sequence[int], generator: Generator | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, requires_grad: bool = False, **keywords: Any,
) -> Tensor:
    """Uniform numbers in [0, 1): `rand(2, 3)` or `rand((2, 3))`; float32 by default.

    >>> mytorch.rand(2, 3).shape
    Size([2, 3])
    """
    size = size_argument(size, keywords, "rand")
    return _new(uniform, size, dtype or dtypes.get_default_dtype(), device, generator, requires_grad)


def randn(
    *size: int | Sequence[int], generator: Generator | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, requires_grad: bool = False, **keywords: Any,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1: `randn(2, 3)` or `randn((2, 3))`; float32 by default.

    >>> mytorch.randn(2, 3).shape
    Size([2, 3])
    """
    size = size_argument(size, keywords, "randn")
    return _new(standard_normal, size, dtype or dtypes.get_default_dtype(), device, generator, requires_grad)


def randint(
    *bounds: int | Sequence[int], low: int | None = None, high: int | None = None,
    size: Sequence[int] | None = None, generator: Generator | None = None, dtype: DTypeLike = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:
    """Integers from `low` to `high - 1`, each as likely: `randint(high, size)` or `randint(low, high, size)`.

    Args:
        size: a tuple.
        dtype: int64 by default; a floating-point one is possible.

    Raises:
        RuntimeError: low >= high, or the dtype can't hold them.

    >>> mytorch.randint(0, 10, (2, 3)).shape
    Size([2, 3])
    """
    bounds = list(bounds)
    size = bounds.pop() if size is None and bounds else size
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"randint(): the size must be a tuple of integers, got {size!r}")
    high = bounds.pop() if high is None and bounds else high
    low = bounds.pop() if low is None and bounds else low
    if bounds or high is None:
        raise TypeError("randint() takes (high, size) or (low, high, size)")
    size = size_of((size,), "randint")
    return _integers(low or 0, high, size, dtype or dtypes.int64, device, generator, requires_grad)


def _integers(low, high, size, dtype, device, generator, requires_grad) -> Tensor:
    def draw(shape, dtype, rng):
        return integers(low, high, shape, dtype, rng)

    return _new(draw, size, dtype, device, generator, requires_grad)


def rand_like(
    input: Tensor, *, generator=None, dtype=None, device=None, requires_grad: bool = False
) -> Tensor:
    """Uniform numbers in [0, 1), in the shape, dtype and on the device of `input`.

    >>> mytorch.rand_like(mytorch.ones(2)).shape
    Size([2])
    """
    kind = same_kind(input, dtype, device, "rand_like")
    return rand(input.shape, generator=generator, **kind, requires_grad=requires_grad)


def randn_like(
    input: Tensor, *, generator=None, dtype=None, device=None, requires_grad: bool = False
) -> Tensor:
    """Normal numbers of mean 0 and variance 1, in the shape, dtype and on the device of `input`.

    >>> mytorch.randn_like(mytorch.ones(2)).shape
    Size([2])
    """
    kind = same_kind(input, dtype, device, "randn_like")
    return randn(input.shape, generator=generator, **kind, requires_grad=requires_grad)


def randint_like(
    input: Tensor, *bounds: int | Sequence[int], low: int | None = None, high: int | None = None,
    generator=None, dtype=None, device=None, requires_grad: bool = False,
) -> Tensor:
    """Integers from `low` (or 0) to `high - 1`, in the shape, dtype and on the device of `input`.

    >>> mytorch.randint_like(mytorch.ones(2), 10).shape
    Size([2])
    """
    kind = same_kind(input, dtype, device, "randint_like")
    size = tuple(input.shape)
    return randint(
        *bounds, low=low, high=high, size=size, generator=generator, **kind, requires_grad=requires_grad
    )


def randperm(
    n: int, *, generator: Generator | None = None, dtype: DTypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """The integers from 0 to n - 1 in random order; int64 by default.

    >>> mytorch.randperm(4).sort().values
    tensor([0 1 2 3])
    """
    (n,) = size_of((n,), "randperm")

    def draw(shape, dtype, rng):
        if n - 1 > _range_of(dtype)[1]:
            raise RuntimeError(f"randperm(): {n - 1} is out of bounds for {dtype}")
        is_numpys = isinstance(rng, np.random.Generator) or getattr(rng, "is_numpys", False)
        order = rng.permutation(n) if is_numpys else np.argsort(rng.random(n))
        return order.astype(dtype, copy=False)

    return _new(draw, (n,), dtype or dtypes.int64, device, generator, requires_grad)


@op
def _normal(mean, std, *, rng):
    _check_std(std, "normal")
    try:
        shape = np.broadcast_shapes(np.shape(mean), np.shape(std))
    except ValueError as error:
        raise RuntimeError(
            f"normal(): mean {np.shape(mean)} and std {np.shape(std)} don't fit: {error}"
        ) from None
    dtype = getattr(mean, "dtype", None) or std.dtype
    noise = standard_normal(shape, dtype, rng)
    return (mean + std * noise).astype(dtype, copy=False), (np.zeros_like, np.zeros_like)


def normal(
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Sequence[int] | None = None, *,
    generator: Generator | None = None, dtype: DTypeLike = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers, with a mean and a standard deviation an element, or in a size: `normal(0, 1, (2, 3))`.

    Args:
        mean, std: tensors, which are broadcast, or numbers; the result has the first tensor's dtype.
        size, dtype, device, requires_grad: only where both are numbers.

    Raises:
        RuntimeError: a negative standard deviation.

    >>> mytorch.normal(0.0, 1.0, (2, 3)).shape
    Size([2, 3])
    """
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    if tensors:
        if size is not None or dtype is not None or device is not None or requires_grad:
            raise TypeError(
                "normal(): where mean or std is a tensor, it says size, dtype and device of the result"
            )
        return _normal(mean, std, rng=generator_on(tensors[0].device, generator).rng)
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"normal(): the size must be a tuple of integers, got {size!r}")
    _check_std(std, "normal")

    def draw(shape, dtype, rng):
        return _scaled(standard_normal, std, mean)(shape, dtype, rng).astype(dtype, copy=False)

    size = size_of((size,), "normal")
    return _new(draw, size, dtype or dtypes.get_default_dtype(), device, generator, requires_grad)


@op
def _bernoulli(p, *, rng):
    _floating(p.dtype, "bernoulli")
    _check_probability(p, "bernoulli")
    return (_draw(p.shape, p.dtype, rng) < p).astype(p.dtype), np.zeros_like


def _draw(shape: tuple, dtype: np.dtype, rng: np.random.Generator) -> RawArray:
    """Uniform numbers, in at least single precision."""
    return rng.random(shape, dtype=np.float64 if dtype == dtypes.float64 else np.float32)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability in `input`, else 0, in its shape and dtype.

    Args:
        input: probabilities; if `p` is given, only its shape, dtype and device count.
        p: one probability for all elements.

    Raises:
        RuntimeError: a probability outside [0, 1].

    >>> mytorch.bernoulli(mytorch.tensor([0.0, 1.0]))
    tensor([0.00000 1.00000])
    """
    rng = generator_on(tensor_argument(input, "bernoulli").device, generator).rng
    if p is None:
        return _bernoulli(input, rng=rng)
    with on(input.device):
        return from_raw(_with_probability(input, p, rng))


def _with_probability(x: Tensor, p: Tensor | float, rng: np.random.Generator) -> RawArray:
    raw = raw_of(p) if isinstance(p, Tensor) else p
    _check_probability(raw, "bernoulli")
    try:
        return (_draw(x.data.shape, getattr(raw, "dtype", dtypes.float64), rng) < raw).astype(x.dtype)
    except ValueError as error:
        raise RuntimeError(
            f"bernoulli(): p has shape {raw.shape}, the tensor {x.data.shape}: {error}"
        ) from None


# Methods that fill a tensor.


def fill(x: Tensor, name: str, generator: Generator | None, draw: Callable) -> Tensor:
    """Overwrites `x` with `draw(shape, dtype, rng)`.

    On the CPU a large tensor is drawn in blocks of rows, which leave no freed memory behind; the numbers are
    the same.
    """
    rng = generator_on(x.device, generator).rng
    if type(rng) is np.random.Generator and x.ndim and x.data.size > BLOCK and not recorded((x,)):
        rows = max(1, BLOCK * len(x) // x.data.size)
        for first in range(0, len(x), rows):
            shape = (min(rows, len(x) - first), *x.data.shape[1:])
            write(x, draw(shape, x.dtype, rng), slice(first, first + rows), name)
        return x
    with on(x.device):
        raw = draw(x.data.shape, x.dtype, rng)
    return write(x, raw, name=name)


def uniform_(x: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills `x` with uniform numbers in [a, b)."""
    if not (math.isfinite(a) and math.isfinite(b)) or a > b:
        raise RuntimeError(f"uniform_(): expected finite bounds with a <= b, got a={a}, b={b}")
    return fill(x, "uniform_", generator, _scaled(uniform, b - a, a))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills `x` with normal numbers."""
    _check_std(std, "normal_")
    return fill(x, "normal_", generator, _scaled(standard_normal, std, mean))


def bernoulli_(x: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills `x` with 1, with probability `p` (a number, or a tensor that broadcasts), else 0."""
    rng = generator_on(x.device, generator).rng
    with on(x.device):
        raw = _with_probability(x, p, rng)
    return write(x, raw, name="bernoulli_")


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills `x` with exponentially distributed numbers of mean 1 / lambd."""
    if not lambd > 0:
        raise RuntimeError(f"exponential_(): lambd must be positive, got {lambd}")
    _floating(x.dtype, "exponential")

    def draw(shape, dtype, rng):
        return rng.standard_exponential(shape, dtype=np.float64) / lambd

    return fill(x, "exponential_", generator, draw)


def random_(
    x: Tensor, low: int | None = None, high: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fills `x` with integers in [low, high), or [0, low) without `high`; by default up to the maximum."""
    if high is None:
        most = _range_of(x.dtype)[1]
        low, high = 0, (most if dtypes.is_floating_point(x.dtype) else most + 1) if low is None else low
    return fill(x, "random_", generator, lambda *how: integers(low or 0, high, *how))
