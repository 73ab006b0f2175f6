"""The methods of a NumPy array, for meta arrays: most are the function of the same name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dtypes import DTypeLike
from . import functions
from .array import MetaArray, new_of, view
from .layout import Shape, like_sample, sample_of

FUNCTIONS = (
    "all", "any", "argmax", "argmin", "argsort", "argpartition", "clip", "cumprod", "cumsum", "diagonal",
    "dot", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "searchsorted", "squeeze",
    "std", "sum", "swapaxes", "take", "trace", "var",
)  # fmt: skip


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
    return view(self, self.layout.view() if dtype is None else self.layout.view(dtype))


MetaArray.astype, MetaArray.reshape, MetaArray.view = _astype, _reshape, _view
MetaArray.transpose = lambda self, *axes: view(self, self.layout.transpose(*axes))
MetaArray.copy = lambda self, order="C": functions.copy(self, order)
MetaArray.flatten = lambda self, order="C": functions.reshape(self, -1, order, copy=True)
MetaArray.conj = lambda self: np.conj(self) if self.dtype.kind == "c" else self
