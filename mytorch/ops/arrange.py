"""Copies with other arrangements of the elements: repeated, turned round, cut to a triangle."""

from __future__ import annotations

import numpy as np

from ..tensor import Tensor
from .dims import canonical_dim
from .op import op
from .shape import as_sizes, dims_in_order
from .shape import diagonal as _diagonal

__all__ = ["repeat", "tile", "flip", "fliplr", "flipud", "roll", "tril", "triu", "diag"]


@op
def repeat(x, *sizes):
    """Dim i repeated `sizes[i]` times, as by NumPy's `tile`; more sizes than dims give new dims in front."""
    counts = as_sizes(sizes, "repeat")
    if len(counts) < x.ndim:
        raise RuntimeError(f"repeat(): {len(counts)} counts {list(counts)} for a {x.ndim}-d tensor")
    return _tiled(x, counts)


@op
def tile(x, *sizes, dims=None):
    """As `repeat`, but counts may be missing in front: these dims stay."""
    counts = as_sizes(sizes if dims is None else dims, "tile")
    return _tiled(x, (1,) * (x.ndim - len(counts)) + counts)


def _tiled(x, counts):
    if any(n < 0 for n in counts):
        raise RuntimeError(f"repeat(): a count can't be negative, got {list(counts)}")
    before = (1,) * (len(counts) - x.ndim) + x.shape
    apart = [n for pair in zip(counts, before, strict=True) for n in pair]
    copies = tuple(range(0, len(apart), 2))
    return np.tile(x, counts), lambda g: _sum(g.reshape(apart), copies)


def _sum(g, dims):
    return np.sum(g, dims, dtype=np.float32 if g.dtype == np.float16 else None)


@op
def flip(x, *sizes, dims=None):
    """The order of the elements along `dims` reversed, a copy."""
    dims = dims_in_order(as_sizes(sizes if dims is None else dims, "flip"), x.ndim, "flip")[: x.ndim]
    return np.flip(x, dims).copy(), lambda g: np.flip(g, dims)


def fliplr(x: Tensor) -> Tensor:
    """Dim 1 reversed."""
    return flip(x, 1)


def flipud(x: Tensor) -> Tensor:
    """Dim 0 reversed."""
    return flip(x, 0)


@op
def roll(x, shifts, dims=None):
    """Elements moved by `shifts` along `dims` (None: flattened), and from one end to the other."""
    shifts = as_sizes((shifts,), "roll")
    if dims is None:
        if len(shifts) != 1:
            raise RuntimeError(f"roll(): several shifts {list(shifts)} need as many dims, got none")
        by, axes = shifts[0], None
    else:
        dims = as_sizes((dims,), "roll")
        if len(dims) != len(shifts):
            raise RuntimeError(f"roll(): shifts {list(shifts)} and dims {list(dims)} differ in length")
        by, axes = shifts, tuple(canonical_dim(d, x.ndim) for d in dims)
    back = tuple(-s for s in by) if axes is not None else -by
    return np.roll(x, by, axes), lambda g: np.roll(g, back, axes)


@op
def tril(x, diagonal=0):
    """The matrices of `x` with zeros above the `diagonal`-th diagonal."""
    _check_matrix(x, "tril")
    return np.tril(x, diagonal), lambda g: np.tril(g, diagonal)


@op
def triu(x, diagonal=0):
    """The matrices of `x` with zeros below the `diagonal`-th diagonal."""
    _check_matrix(x, "triu")
    return np.triu(x, diagonal), lambda g: np.triu(g, diagonal)


def _check_matrix(x, name):
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got shape {x.shape}")


@op
def diag(x, diagonal=0):
    """The square matrix with this diagonal; or the diagonal of a matrix, a copy."""
    if x.ndim == 1:
        return np.diag(x, diagonal), lambda g: np.diagonal(g, diagonal)
    if x.ndim != 2:
        raise RuntimeError(f"diag(): expects a 1-D or 2-D tensor, got {x.ndim}-D")
    y, vjp = _diagonal.forward(x, diagonal)
    return y.copy(), vjp
