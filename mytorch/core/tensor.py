"""Tensor: an Array that records how it was computed.

Its operators and methods, `backward` among them, are listed in `methods.py`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from operator import attrgetter, index
from typing import Any

import numpy as np

from ..backends.device import (
    CPU,
    DeviceLike,
    RawArray,
    as_device,
    device,
    is_raw,
    move,
    shown_device,
)
from ..backends.door import forces, in_force
from ..backends.dtypes import DTypeLike, get_default_dtype, is_inexact
from .array import Array
from .grad_mode import enable_grad
from .graph import Node, Version, View, replay_views
from .hook import RemovableHandle, require_same
from .printing import tensor_text
from .size import Size

_new = object.__new__


def _is_on(kind: str) -> Callable[[Tensor], bool]:
    return lambda self: shown_device(self._data._array).type == kind


class Tensor:
    """An n-dimensional array that supports automatic differentiation.

    `Tensor(2, 3)` is uninitialized memory of shape (2, 3), and `Tensor([2, 3])` has these elements, as
    floats; `mytorch.tensor` takes the dtype from the numbers.

    Args:
        data: a Tensor, an Array, a NumPy or CuPy array, whose dtype and memory it keeps; or nested lists of
            numbers, or a float, which get the default dtype.
        sizes: with ints, the shape; a `Size` is one, too.
        requires_grad: whether operations on it are recorded and `backward()` fills its `.grad`.
        dtype, device: as for `Array`.
        grad_fn, grad_fn_name: a backward function and its name (see `autograd.manual`).

    Raises:
        TypeError: `data` is not numeric; a size that is no int.
        RuntimeError: a negative size; the device does not exist.

    Attributes:
        data: the Array (`.data._array` is the raw NumPy or CuPy array).
        grad: the gradient, an Array of the same shape, or None.

    >>> x = mytorch.Tensor([1, 2], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Array([2.00000 4.00000], dtype=float32)
    """

    __slots__ = {
        "_data": "The Array of `data`.",
        "grad_slot": "The section of a flat buffer in which backward writes a new gradient, or None.",
        **dict.fromkeys(("_grad", "_node", "_version", "_view", "_post_hooks", "__weakref__")),
    }
    __array_priority__ = 200

    def __init__(
        self, data: object = (), *sizes: int, requires_grad: bool = False, dtype: DTypeLike = None,
        device: DeviceLike = None, grad_fn: Callable | None = None, grad_fn_name: str | None = None,
    ):
        if isinstance(data, Tensor) and not sizes:
            data = data.data
        elif sizes or (isinstance(data, (int, np.integer, Size)) and not isinstance(data, bool)):
            data = _uninitialized(data if isinstance(data, Size) else (data, *sizes))
            dtype = get_default_dtype() if dtype is None else dtype
        elif dtype is None and not hasattr(data, "dtype"):
            dtype = get_default_dtype()
        as_is = isinstance(data, Array) and dtype is None and device is None
        self._set(data if as_is else Array(data, dtype, device))
        if requires_grad:
            self.requires_grad_()
            if grad_fn is not None:
                self._node.name, self._node.vjp = (grad_fn_name or "grad_fn").strip("<>"), grad_fn

    def _set(self, data: Array) -> None:
        self._data = data
        self._grad = self._node = self._view = self.grad_slot = self._post_hooks = None
        self._version = Version()

    def _set_data(self, value: object) -> None:
        self._data = value.data if isinstance(value, (Array, Tensor)) else Array(value)
        if self._node is not None:
            self._node.follow(self._data._array)
        if self.grad_slot is not None and not self.grad_slot.fits(self._data._array):
            self.grad_slot = None  # else backward would round, stretch or move the gradient

    data = property(attrgetter("_data"), _set_data, doc="The Array of the values; it may be set to a Tensor.")
    shape = property(lambda self: Size(self._data._array.shape), doc="The number of elements along each dim.")
    dtype = property(attrgetter("_data._array.dtype"))
    ndim = property(attrgetter("_data._array.ndim"))
    itemsize = property(attrgetter("_data._array.dtype.itemsize"))
    nbytes = property(attrgetter("_data._array.nbytes"))
    is_leaf = property(lambda self: self.grad_fn is None, doc="Whether no recorded operation made it.")
    is_cpu = property(_is_on("cpu"), doc="Whether the memory of the CPU holds the data.")
    is_cuda = property(_is_on("cuda"), doc="Whether a GPU holds the data.")
    is_meta = property(_is_on("meta"), doc="Whether there are no data, only a shape.")

    @property
    def device(self) -> device:
        """The device that holds the data.

        >>> mytorch.ones(2).device
        device('cpu')
        """
        return shown_device(self._data._array)

    # The graph.

    @property
    def node(self) -> Node | None:
        """The node of the graph that made this tensor; None if it requires no gradient."""
        view = self._view
        if view is not None:
            now = view.base._node
            if now is not view.origin and now is not None and now.parents:  # the base was written in place
                with enable_grad():
                    replayed = replay_views(view.replay, view.base)
                view.origin = now
                self._watch(replayed._node)
        return self._node

    @property
    def grad_fn(self) -> Node | None:
        """The node of the operation that made the tensor; None for a leaf.

        >>> mytorch.ones(2, requires_grad=True).grad_fn is None
        True
        """
        in_force().reads_history(self)
        return node if (node := self.node) is not None and node.parents else None

    def _watch(self, node: Node | None) -> None:
        self._node = node
        if node is not None:
            node.tensor = weakref.ref(self)

    @property
    def requires_grad(self) -> bool:
        """Whether operations on the tensor are recorded.

        >>> (mytorch.ones(2, requires_grad=True) * 2).requires_grad
        True
        """
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, mode: bool) -> None:
        self.requires_grad_(mode)

    def requires_grad_(self, mode: bool = True) -> Tensor:
        """Sets `requires_grad` in place and returns the tensor.

        Raises:
            RuntimeError: the dtype has no gradient; `mode` is False and the tensor is an operation's result.

        >>> mytorch.ones(2).requires_grad_()
        tensor([1.00000 1.00000], requires_grad=True)
        """
        if not mode:
            if self.node is not None and self.node.parents:
                raise RuntimeError("you can only change requires_grad flags of leaf tensors; use detach()")
            self._node = None
        elif self.node is None:
            if not is_inexact(self.dtype):
                raise RuntimeError(f"only floating-point tensors can require gradients, got {self.dtype}")
            self._watch(Node("leaf", (), None, self._data._array.shape, self.dtype, self.device))
        return self

    def _set_grad(self, value: object) -> None:
        if value is not None:
            if not isinstance(value, Array):
                value = value.data if isinstance(value, Tensor) else Array(value)
            if value.shape != self.data.shape or value.dtype != self.dtype or value.device is not self.device:
                raise RuntimeError(
                    f"a gradient has its tensor's shape {self.data.shape}, dtype {self.dtype} and device "
                    f"{self.device.full_name}, got {value.shape}, {value.dtype}, {value.device.full_name}"
                )
        if forces:
            in_force().sets_grad(self)
        self._grad = value

    def _get_grad(self) -> Array | None:
        """The gradient that backward has computed, or None; of a tensor that is no leaf, which warns, None
        unless it was retained."""
        grad = self._grad
        if grad is None and forces:
            in_force().reads_grad(self)
        if grad is None and (node := self._node) is not None and node.parents and not node.retain:
            warnings.warn(
                "the .grad of a tensor that is not a leaf is None: backward() fills those of leaves. Call "
                "retain_grad() on this tensor before backward(), or read the .grad of the leaf instead",
                stacklevel=2,
            )
        return grad

    grad = property(_get_grad, _set_grad)

    def retain_grad(self) -> None:
        """Keeps the `.grad` of this tensor although it is the result of an operation.

        >>> x = mytorch.ones(2, requires_grad=True)
        >>> y = x * 3
        >>> y.retain_grad()
        >>> (y * y).sum().backward()
        >>> y.grad
        Array([6.00000 6.00000], dtype=float32)
        """
        if self.node is None:
            raise RuntimeError("can't retain_grad() on a tensor that has requires_grad=False")
        self.node.retain = True

    def detach(self) -> Tensor:
        """Returns a tensor that shares the memory, without history; in-place writes to either change both.

        >>> (mytorch.ones(2, requires_grad=True) * 2).detach()
        tensor([2.00000 2.00000])
        """
        out = from_raw(self._data._array)
        out._version = self._version
        return out

    def detach_(self) -> Tensor:
        """Removes the history, in place."""
        if self._view is not None:
            raise RuntimeError("can't detach a view in place; use detach()")
        self._node = None
        return self

    def register_hook(self, hook: Callable[[Tensor], object]) -> RemovableHandle:
        """Calls `hook(gradient)` when the gradient is complete; a returned tensor replaces it.

        Raises (in the backward pass):
            RuntimeError: that tensor has another shape, dtype or device than the gradient.
            TypeError: the hook returns no tensor.

        >>> x = mytorch.ones(2, requires_grad=True)
        >>> _ = x.register_hook(lambda g: g * 10)
        >>> x.sum().backward()
        >>> x.grad
        Array([10.00000 10.00000], dtype=float32)
        """
        if self.node is None:
            raise RuntimeError("can't register a hook on a tensor that doesn't require gradient")
        if self.node.hooks is None:
            self.node.hooks = {}

        def on_raw(grad):
            with_graph = isinstance(grad, Tensor)
            changed = hook(grad if with_graph else from_raw(grad))
            if changed is None:
                return grad
            raw = require_same(changed, raw_of(grad), hook)
            return raw if not with_graph else changed if isinstance(changed, Tensor) else from_raw(raw)

        on_raw.__wrapped__ = hook  # what compiled functions look at
        return RemovableHandle(self.node.hooks, on_raw)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook(tensor)` after a backward pass has added to this leaf's `.grad`; it returns None."""
        if self.node is None or not self.is_leaf:
            raise RuntimeError("post accumulate grad hooks are for leaf tensors that require grad")
        if self._post_hooks is None:
            self._post_hooks = {}
        return RemovableHandle(self._post_hooks, hook)

    # Conversions.

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Returns the NumPy array that holds the data, not a copy; bfloat16 has ml_dtypes' dtype.

        Raises:
            RuntimeError: it requires grad (use `detach()`), unless `force`.
            TypeError: it is on a GPU (use `cpu()`), unless `force`.

        >>> mytorch.arange(3).numpy()
        array([0, 1, 2])
        """
        if force:
            return move(self._data._array, CPU)
        if self.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad; use detach().numpy()")
        return self.data.numpy()

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def item(self) -> int | float | bool | complex:
        """Returns the only element as a Python number.

        >>> mytorch.tensor([2.5]).item()
        2.5
        """
        if self._data._array.size != 1:
            count, shape = self._data._array.size, self.data.shape
            raise RuntimeError(f"a tensor with {count} elements, of shape {shape}, can't be one number")
        return self.data.item()

    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python numbers; a number for 0 dims.

        >>> mytorch.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.data.tolist()

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self._data._array.size != 1:
            raise RuntimeError(f"truth of a tensor of shape {self.data.shape} is ambiguous: use any(), all()")
        return bool(self._data)

    def _only_element(self) -> int | float | bool | complex:
        if self._data._array.size != 1:
            raise ValueError(f"only a tensor of one element can be a number, got shape {self.data.shape}")
        return self.data.item()

    def __int__(self) -> int:
        return int(self._only_element())

    def __float__(self) -> float:
        return float(self._only_element())

    def __index__(self) -> int:
        if self.dtype.kind not in "iub" or self._data._array.size != 1:
            got = f"got {self.dtype} of shape {self.data.shape}"
            raise TypeError(f"only an integer tensor of one element can be an index, {got}")
        return int(self.data.item())

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and (spec or type(self) is Tensor):
            return format(self.item(), spec)
        return object.__format__(self, spec)

    __hash__ = object.__hash__  # `==` is elementwise

    def __dlpack__(self, **kwargs):
        if self.requires_grad:
            raise BufferError("can't export a tensor that requires grad; use tensor.detach()")
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()

    def __deepcopy__(self, memo: dict) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("only leaf tensors support deepcopy; use detach() first")
        out = self._rebuild(type(self), self.data.clone(), self.requires_grad)
        if self._grad is not None:
            out.grad = self._grad.clone()
        return memo.setdefault(id(self), out)

    def __reduce__(self):
        if not self.is_leaf:
            raise RuntimeError("only leaf tensors can be pickled; use detach() first")
        return Tensor._rebuild, (type(self), self.data, self.requires_grad)

    @staticmethod
    def _rebuild(kind: type, data: RawArray, requires_grad: bool) -> Tensor:
        out = _new(kind)
        out._set(Array(data))
        return out.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        marks = []
        if self.grad_fn is not None:
            marks.append(f"grad_fn=<{self.grad_fn.name}>")
        elif self.requires_grad:
            marks.append("requires_grad=True")
        return tensor_text(self.data, marks)


def _uninitialized(sizes: tuple) -> np.ndarray:
    """Returns memory of this shape, for the class called with sizes."""
    try:
        sizes = tuple(map(index, sizes))
    except TypeError:
        raise TypeError(f"Tensor(): the sizes are ints, got {', '.join(map(repr, sizes))}") from None
    if sizes and min(sizes) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {list(sizes)}")
    return np.empty(sizes, get_default_dtype())


def from_raw(raw: RawArray) -> Tensor:
    """Returns a Tensor around a raw array, without history."""
    data = _new(Array)
    data._array = np.asarray(raw) if isinstance(raw, np.generic) else raw
    out = _new(Tensor)
    out._data = data  # what `_set` does, without a call
    out._grad = out._node = out._view = out.grad_slot = out._post_hooks = None
    out._version = Version()
    return out


def increment_version(x: Tensor) -> None:
    """Counts an in-place write to the memory of `x`: a graph that needs the old values must raise."""
    base = x if x._view is None else x._view.base
    x._version.bump(base._data._array)


def version_of(x: Tensor) -> int:
    """Returns how often the memory of `x` was written in place."""
    return x._version.count


def raw_of(x: object, device: DeviceLike = None) -> RawArray:
    """Returns the raw array of a Tensor, an Array, a raw array or numbers; moved to `device` if given."""
    if isinstance(x, Tensor):
        x = x.data
    raw = x._array if isinstance(x, Array) else x
    if not is_raw(raw):
        raw = Array(raw)._array
    return raw if device is None else move(raw, as_device(device))


__all__ = [
    "RemovableHandle", "Size", "Tensor", "View", "from_raw", "increment_version", "raw_of", "replay_views",
    "version_of",
]
