"""NumPy's linear algebra and Fourier transforms of meta arrays: shapes by rules, dtypes of identities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .array import MetaArray, from_result
from .functions import FUNCTIONS
from .layout import Shape, cut, sample_of
from .ufuncs import axes_of


def _matrices(x: object) -> tuple[Shape, int, int]:
    shape = np.shape(x)
    if len(shape) < 2:
        raise np.linalg.LinAlgError(f"{len(shape)}-dimensional array given. Array must be at least 2-d")
    return shape[:-2], *shape[-2:]


def _square(x: object) -> Shape:
    batch, m, n = _matrices(x)
    if m != n:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return batch


def shapes_of(*functions: Callable) -> Callable:
    """Registers the shapes of these functions' results; their samples are identities."""

    def register(shapes: Callable) -> Callable:
        for function in functions:
            FUNCTIONS[function] = _with_identities(function, shapes)
        return shapes

    return register


def _with_identities(function: Callable, shapes: Callable) -> Callable:
    def call(*args, **kwargs):
        found = shapes(*args, **kwargs)
        return from_result(function(*map(_identity, args), **kwargs), found)

    return call


def _identity(x: object) -> object:
    if not isinstance(x, MetaArray):
        return x
    shape = cut(x.shape)
    one = np.eye(*shape[-2:], dtype=x.dtype) if len(shape) > 1 else np.ones((), x.dtype)
    return np.array(np.broadcast_to(one, shape), order="C")


@shapes_of(np.linalg.inv, np.linalg.cholesky)
def _of_its_shape(x, *, upper=False):
    return (*_square(x), *x.shape[-2:])


@shapes_of(np.linalg.solve)
def _solve(a, b):
    batch = _square(a)
    if np.ndim(b) == 1:
        return (*batch, np.shape(b)[0])
    return (*np.broadcast_shapes(batch, np.shape(b)[:-2]), *np.shape(b)[-2:])


@shapes_of(np.linalg.det)
def _det(x):
    return _square(x)


@shapes_of(np.linalg.slogdet)
def _slogdet(x):
    return _square(x), _square(x)


@shapes_of(np.linalg.eigh)
def _eigh(x, UPLO="L"):
    batch = _square(x)
    return (*batch, x.shape[-1]), (*batch, *x.shape[-2:])


@shapes_of(np.linalg.eigvalsh)
def _eigvalsh(x, UPLO="L"):
    return (*_square(x), x.shape[-1])


@shapes_of(np.linalg.qr)
def _qr(x, mode="reduced"):
    batch, m, n = _matrices(x)
    k = m if mode == "complete" else min(m, n)
    return (*batch, k, n) if mode == "r" else ((*batch, m, k), (*batch, k, n))


@shapes_of(np.linalg.svd)
def _svd(x, full_matrices=True, compute_uv=True, hermitian=False):
    batch, m, n = _matrices(x)
    k = min(m, n)
    if not compute_uv:
        return (*batch, k)
    return (*batch, m, m if full_matrices else k), (*batch, k), (*batch, n if full_matrices else k, n)


def _transform(function: Callable, length: Callable[[int], int], halves: bool) -> Callable:
    """A Fourier transform that makes `length(n)` numbers; by default n is the dim's size, or 2 (size - 1)."""

    def call(x, n=None, axis=-1, norm=None, out=None):
        (axis,) = axes_of(axis, x.ndim)
        default = 2 * (x.shape[axis] - 1) if halves else x.shape[axis]
        n = default if n is None else n
        if n < 1:
            raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
        result = function(sample_of(x.layout), 2, axis)  # of two numbers; its memory order is the result's
        return from_result(result, (*x.shape[:axis], length(n), *x.shape[axis + 1 :]), checked=False)

    return call


for _function in (np.fft.fft, np.fft.ifft, np.fft.irfft):
    FUNCTIONS[_function] = _transform(_function, lambda n: n, _function is np.fft.irfft)
FUNCTIONS[np.fft.rfft] = _transform(np.fft.rfft, lambda n: n // 2 + 1, False)
