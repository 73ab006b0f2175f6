"""Discrete Fourier transforms under PyTorch's names: `mytorch.fft.fft`, `rfft`, …

The transform of x along a dim of n elements is X_k = sum_j x_j exp(-2πi jk / n). It is linear, with a
symmetric matrix, and so its vjp is the transform itself: the backward pass conjugates before and after (see
`engine.call_vjp`). Transforms of real numbers, which store half of a symmetric result, differ by the factor 2
of the terms that stand for two.

Source: https://numpy.org/doc/stable/reference/routines.fft.html
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .backends.device import DeviceLike, RawArray
from .backends.dtypes import DTypeLike, as_dtype, get_default_dtype, is_half, is_inexact
from .core.op import op, require_tensor
from .core.tensor import Tensor
from .ops.arrays import make_them_take_arrays
from .ops.dims import canonical_dim
from .ops.rearrange import roll

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "ifft", "ifft2", "ifftn", "ifftshift", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]

Ints: TypeAlias = int | Sequence[int] | None
_OTHER_WAY = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform along a dim: X_k = sum_j x_j exp(-2πi jk / n), complex.

    Args:
        input: real or complex; integers become floats.
        n: cut or fill up with zeros to this size first.
        norm: "backward" (the default): divide by n in the inverse transform; "forward": in this one; "ortho":
            by sqrt(n) in both.

    Raises:
        RuntimeError: half precision; no elements along the dim; another `norm`.
        IndexError: the dim is out of range.
    """
    return _along("fft", _fft, input, n, dim, norm)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`, x_j = 1/n sum_k X_k exp(2πi jk / n); arguments and errors as there."""
    return _along("ifft", _ifft, input, n, dim, norm)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first n // 2 + 1 elements of the `fft` of real numbers; the others are conjugates of these.

    Raises:
        RuntimeError: as `fft`; the input is complex.
    """
    return _along("rfft", _rfft, input, n, dim, norm)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers, of the first n // 2 + 1 elements of a transform.

    Args:
        n: the size of the result; default 2 * (size - 1), which is even.
        input, dim, norm: as for `fft`. The imaginary part of the first element counts for nothing; nor does
            that of the last, if n is even.
    """
    return _along("irfft", _irfft, input, n, dim, norm)


def fftn(input: Tensor, s: Ints = None, dim: Ints = None, norm: str | None = None) -> Tensor:
    """The transform along several dims.

    Args:
        s: their sizes, as `n` of `fft`; -1 for the input's.
        dim: which; default: all of them, or the last len(s).
        norm: as for `fft`, with the product of the sizes.

    Raises:
        RuntimeError: as `fft`; a dim twice; `s` and `dim` of different lengths.
    """
    return _along_several("fftn", fft, input, s, dim, norm)


def ifftn(input: Tensor, s: Ints = None, dim: Ints = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`."""
    return _along_several("ifftn", ifft, input, s, dim, norm)


def rfftn(input: Tensor, s: Ints = None, dim: Ints = None, norm: str | None = None) -> Tensor:
    """The `rfft` along the last of several dims, the `fft` along the others.

    Raises:
        RuntimeError: as `fftn`; no dim; the input is complex.
    """
    require_tensor(input, "rfftn")
    _need_real("rfftn", input)
    sizes, dims = _sizes_and_dims("rfftn", input, s, dim)
    if not dims:
        raise RuntimeError("rfftn must transform at least one axis")
    y = rfft(input, sizes[-1], dims[-1], norm)
    return _along_several("rfftn", fft, y, sizes[:-1], dims[:-1], norm)


def irfftn(input: Tensor, s: Ints = None, dim: Ints = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`: `ifft` along the dims but the last, and `irfft` along that one."""
    require_tensor(input, "irfftn")
    last_is_default = s is None or (isinstance(s, Sequence) and len(s) > 0 and s[-1] == -1)
    sizes, dims = _sizes_and_dims("irfftn", input, s, dim)
    if not dims:
        raise RuntimeError("irfftn must transform at least one axis")
    y = _along_several("irfftn", ifft, input, sizes[:-1], dims[:-1], norm)
    return irfft(y, None if last_is_default else sizes[-1], dims[-1], norm)


def fft2(input: Tensor, s: Ints = None, dim: Ints = (-2, -1), norm: str | None = None) -> Tensor:
    """`fftn` along the last two dims."""
    return fftn(input, s, dim, norm)


def ifft2(input: Tensor, s: Ints = None, dim: Ints = (-2, -1), norm: str | None = None) -> Tensor:
    """`ifftn` along the last two dims."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Ints = None, dim: Ints = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfftn` along the last two dims."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Tensor, s: Ints = None, dim: Ints = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along the last two dims."""
    return irfftn(input, s, dim, norm)


def fftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of the elements of `fft`, [0, 1, …, (n-1) // 2, -(n // 2), …, -1] / (n d).

    Args:
        d: the distance of two samples.
    """
    numbers = [*range((n + 1) // 2), *range(-(n // 2), 0)]
    return _frequencies("fftfreq", numbers, n, d, dtype, device, requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of the elements of `rfft`, [0, 1, …, n // 2] / (n d)."""
    return _frequencies("rfftfreq", range(n // 2 + 1), n, d, dtype, device, requires_grad)


def fftshift(input: Tensor, dim: Ints = None) -> Tensor:
    """Moves the element of frequency 0 to the middle, by half of the size, along the dims (default: all)."""
    return _shifted("fftshift", input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim: Ints = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", input, dim, lambda n: (n + 1) // 2)


# The transforms along one dim, of floats, with the size of the result.


@op
def _fft(x, n, dim, norm):
    size = x.shape[dim]
    return np.fft.fft(x, n, dim, norm), lambda g: _cut(_fft.dual(g, n, dim, norm), size, dim)


@op
def _ifft(x, n, dim, norm):
    size = x.shape[dim]
    return np.fft.ifft(x, n, dim, norm), lambda g: _cut(_ifft.dual(g, n, dim, norm), size, dim)


@op
def _rfft(x, n, dim, norm):
    """The vjp: the part of the transform that the half of g, filled up with zeros, has."""
    size = x.shape[dim]

    def vjp(g):
        return _cut(_fft.dual(_padded(g, n, dim), n, dim, norm), size, dim)

    return np.fft.rfft(x, n, dim, norm), vjp


@op
def _irfft(x, n, dim, norm):
    """The vjp: the `rfft` of g, twice for each element that stands for itself and its conjugate."""
    size = x.shape[dim]

    def vjp(g):
        twice = np.zeros((n // 2 + 1, *(1,) * (g.ndim - 1 - dim)), g.dtype, like=g) + 2
        twice[0] = 1
        if n % 2 == 0:
            twice[-1] = 1
        return _cut(_rfft.dual(g, n, dim, _OTHER_WAY[norm]) * twice, size, dim)

    return np.fft.irfft(x, n, dim, norm), vjp


def _cut(x: RawArray, size: int, dim: int) -> RawArray:
    """x cut or filled up with zeros to `size` along the dim."""
    return _padded(x[(slice(None),) * dim + (slice(size),)], size, dim)


def _padded(x: RawArray, size: int, dim: int) -> RawArray:
    if x.shape[dim] >= size:
        return x
    rest = np.zeros((*x.shape[:dim], size - x.shape[dim], *x.shape[dim + 1 :]), x.dtype, like=x)
    return np.concatenate([x, rest], axis=dim)


# Arguments.


def _along(name: str, transform: Callable, x: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    require_tensor(x, name)
    x = _as_floats(name, x)
    if norm not in (None, *_OTHER_WAY):
        raise RuntimeError(f'{name}(): Invalid normalization mode: "{norm}"')
    if x.ndim == 0:
        raise IndexError(f"{name}(): Dimension specified as {dim} but tensor has no dimensions")
    dim = canonical_dim(dim, x.ndim)
    n = (2 * (x.shape[dim] - 1) if name == "irfft" else x.shape[dim]) if n is None else operator.index(n)
    if n < 1:
        raise RuntimeError(f"{name}(): Invalid number of data points ({n}) specified")
    return transform(x, n, dim, norm or "backward")


def _as_floats(name: str, x: Tensor) -> Tensor:
    if is_half(x.dtype):
        raise RuntimeError(f"{name}(): Unsupported dtype {x.dtype}")
    if name == "rfft":
        _need_real(name, x)
    return x if is_inexact(x.dtype) else x.to(get_default_dtype())


def _need_real(name: str, x: Tensor) -> None:
    if x.dtype.kind == "c":
        raise RuntimeError(f"{name} expects a real input tensor, but got {x.dtype}")


def _along_several(name: str, transform: Callable, x: Tensor, s: Ints, dim: Ints, norm: str | None) -> Tensor:
    require_tensor(x, name)
    sizes, dims = _sizes_and_dims(name, x, s, dim)
    for n, d in zip(sizes, dims, strict=True):
        x = transform(x, n, d, norm)
    return x if x.dtype.kind == "c" else _to_complex(_as_floats(name, x))


def _to_complex(x: Tensor) -> Tensor:
    return x.to("complex128" if x.dtype == np.float64 else "complex64")


def _sizes_and_dims(name: str, x: Tensor, s: Ints, dim: Ints) -> tuple[list[int], list[int]]:
    s, dim = ((t,) if isinstance(t, int) else t for t in (s, dim))
    if dim is None:
        if s is not None and len(s) > x.ndim:
            raise RuntimeError(
                f"{name}(): Got shape with {len(s)} values but input tensor only has {x.ndim} dimensions"
            )
        dim = range(x.ndim)[x.ndim - (x.ndim if s is None else len(s)) :]
    dims = [canonical_dim(d, x.ndim) for d in dim]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"{name}(): FFT dims must be unique, got {tuple(dim)}")
    if s is not None and len(s) != len(dims):
        raise RuntimeError(f"{name}(): When given, dim and shape arguments must have the same length")
    sizes = [-1] * len(dims) if s is None else list(s)
    return [x.shape[d] if n == -1 else n for n, d in zip(sizes, dims, strict=True)], dims


def _frequencies(name, numbers, n, d, dtype, device, requires_grad) -> Tensor:
    dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    if not is_inexact(dtype):
        raise RuntimeError(f"{name} requires a floating point or complex dtype, got {dtype}")
    values = np.array(list(numbers), np.float64) / (n * d if n else 1)
    return Tensor(values.astype(dtype), device=device, requires_grad=requires_grad)


def _shifted(name: str, x: Tensor, dim: Ints, by: Callable[[int], int]) -> Tensor:
    require_tensor(x, name)
    dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return roll(x, [by(x.shape[canonical_dim(d, x.ndim)]) for d in dims], dims)


make_them_take_arrays(globals(), __all__)
