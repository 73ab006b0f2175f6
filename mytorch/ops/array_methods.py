"""The methods of a Tensor on an Array, from the same table: `p.grad.lerp_(g, 0.1)`, `p.data.norm(dim=1)`.

An Array records no graph. What a method of it returns is an Array too, unless an argument is a Tensor that
requires grad: then it is a Tensor, with its graph. An in-place method writes values into the Array's own
memory, so a gradient in a flat buffer stays in it.

NumPy's arrays also have some of the names (`max`, `std`, `sort`, …). A call that fits the Tensor's method is
the Tensor's; any other, as `x.max(axis=0)` or `x.std(ddof=0)`, is NumPy's. `np.std(x)` always is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..backends.device import shown_device
from ..core.array import NUMPY_METHODS, Array
from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor, from_raw
from . import properties
from .arrays import as_tensors

# Not those that need a graph, and not those that give the tensor itself another shape or dtype.
_WITHOUT = {"backward", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_"}
_NUMPYS = {"astype", "dot"}  # NumPy's copies always; NumPy's multiplies matrices as well


def attach_to_array(name: str, function: Callable | property) -> None:
    """Makes a method of Tensor one of Array, if it needs no graph and Array has none of its own."""
    if name in _WITHOUT | _NUMPYS or (name.startswith("__") and name.endswith("__")):
        return
    own = Array.__dict__.get(name)
    if name in NUMPY_METHODS:
        setattr(Array, name, _or_numpys(_method(name, function), getattr(own, "numpys", own)))
    elif own is None:
        getter = isinstance(function, property) and property(_method(name, function.fget))
        setattr(Array, name, getter or _method(name, function))


def _as_arrays(x: object) -> Any:
    """Returns Tensors without a graph as Arrays, also in a tuple, and anything else as it is."""
    if isinstance(x, Tensor):
        return x.data if x.node is None else x
    if isinstance(x, tuple) and not isinstance(x, Size):
        items = map(_as_arrays, x)
        return x._make(items) if hasattr(x, "_make") else tuple(items)
    return x


def _method(name: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def method(self: Array, *args, **kwargs):
        tensor = from_raw(self._array)
        out = function(tensor, *map(as_tensors, args), **kwargs)
        return self if out is tensor else _as_arrays(out)

    @functools.wraps(function)
    def in_place(self: Array, *args, **kwargs) -> Array:
        with no_grad():
            function(from_raw(self._array), *map(as_tensors, args), **kwargs)
        return self

    return in_place if name.endswith("_") else method


def _or_numpys(tensors: Callable, numpys: Callable) -> Callable:
    """The Tensor's method for the calls that fit it, NumPy's for all others."""
    signature = inspect.signature(tensors)

    @functools.wraps(tensors)
    def method(self: Array, *args, **kwargs):
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            return numpys(self, *args, **kwargs)
        return tensors(self, *args, **kwargs)

    method.numpys = numpys
    return method


class _Count(int):
    """The number of elements, `x.size` in NumPy; called, PyTorch's `x.size()` and `x.size(0)`."""

    array: Array

    def __call__(self, dim: int | None = None) -> Size | int:
        return properties.size(from_raw(self.array._array), dim)

    def __reduce__(self):
        return int, (int(self),)


def _size(self: Array) -> _Count:
    count = _Count(self._array.size)
    count.array = self
    return count


def _set_data(self: Array, value: object) -> None:
    """Overwrites the elements: a gradient keeps its memory.

    Raises:
        RuntimeError: another shape, dtype or device.
    """
    new = as_tensors(value)
    if new.shape != self.shape or new.dtype != self.dtype or new.device is not self.device:
        raise RuntimeError(
            f"data: an Array keeps its shape {self.shape}, dtype {self.dtype} and device {self.device}, "
            f"got {tuple(new.shape)}, {new.dtype}, {new.device}"
        )
    self.copy_(value)


def _requires_grad_(self: Array, mode: bool = True) -> Array:
    """Returns the Array, which never requires grad.

    Raises:
        RuntimeError: `mode` is True.
    """
    if mode:
        raise RuntimeError(
            "an Array (a .grad, a .data) records no graph and can't require grad; "
            "mytorch.Tensor(array, requires_grad=True) does"
        )
    return self


def _itself(self: Array) -> Array:
    """Returns the Array, which has no history."""
    return self


Array.size = property(_size, doc="The number of elements; called, the shape, or the size of a dim.")
Array.data = property(_itself, _set_data)
Array.requires_grad = property(lambda self: False, _requires_grad_, doc="False: it records nothing.")
Array.requires_grad_ = _requires_grad_
Array.detach_ = _itself
Array.grad = Array.grad_fn = property(lambda self: None, doc="None: an Array has no history.")
Array.is_leaf = property(lambda self: True, doc="True: no recorded operation made it.")
for _kind in ("cpu", "cuda", "meta"):
    _is_on = property(
        lambda self, kind=_kind: shown_device(self._array).type == kind,
        doc=getattr(Tensor, f"is_{_kind}").__doc__,
    )
    setattr(Array, f"is_{_kind}", _is_on)
Array.itemsize = property(lambda self: self._array.itemsize, doc="The size of an element in bytes.")
