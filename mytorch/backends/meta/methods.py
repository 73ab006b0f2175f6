"""The methods of a NumPy array, for meta arrays: most are the function of the same name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dtypes import DTypeLike
from . import functions
from .array import MetaArray, new, new_of, view_as
from .cache import cached
from .layout import Shape, like_sample, sample_of

FUNCTIONS = (
    "all", "any", "argmax", "argmin", "argsort", "argpartition", "clip", "cumprod", "cumsum", "diagonal",
    "dot", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "searchsorted", "squeeze",
    "std", "sum", "swapaxes", "take", "trace", "var",
)


def _method(function: Callable) -> Callable:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


for _name in FUNCTIONS:
    setattr(MetaArray, _name, _method(getattr(np, _name)))


def _astype(
    self, dtype: DTypeLike, order: str = "K", casting: str = "unsafe", copy: bool = True
) -> MetaArray:
    if isinstance(dtype, MetaArray):  # np.dtype would take its dtype
        raise TypeError("astype(): a dtype is no array")
    dtype = np.dtype(dtype)
    if not copy and dtype == self.dtype and (order == "K" or self.flags.c_contiguous):
        return self
    return new_of(like_sample(self.shape, sample_of(self.layout).astype(dtype, order, casting)))


def _reshape(self, *shape: int | Shape, order: str = "C") -> MetaArray:
    return functions.reshape(self, shape[0] if len(shape) == 1 else shape, order)


def _view(self, dtype: DTypeLike = None) -> MetaArray:
    array = self.layout.array
    return view_as(self, array.view() if dtype is None else array.view(dtype))


def _real(self) -> MetaArray:
    return view_as(self, self.layout.array.real) if self.dtype.kind == "c" else self


def _imag(self) -> MetaArray:
    return view_as(self, self.layout.array.imag) if self.dtype.kind == "c" else new(self.shape, self.dtype)


def _set_real(self, value: object) -> None:
    self.real[...] = value


def _set_imag(self, value: object) -> None:
    self.imag[...] = value


MetaArray.astype, MetaArray.reshape, MetaArray.view = cached(_astype), cached(_reshape), cached(_view)
MetaArray.transpose = cached(lambda self, *axes: view_as(self, self.layout.array.transpose(*axes)))
MetaArray.copy = cached(lambda self, order="C": functions.copy(self, order))
MetaArray.flatten = cached(lambda self, order="C": functions.reshape(self, -1, order, copy=True))
MetaArray.conj = cached(lambda self: np.conj(self) if self.dtype.kind == "c" else self)
MetaArray.T = property(cached(lambda self: view_as(self, self.layout.array.T)))
MetaArray.mT = property(cached(lambda self: view_as(self, self.layout.array.mT)))
MetaArray.real, MetaArray.imag = property(cached(_real), _set_real), property(cached(_imag), _set_imag)
