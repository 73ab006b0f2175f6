"""Parameters and buffers whose shape isn't known yet; lazy modules give it to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.tensor import Tensor
from ..ops import empty
from .functional.types import DeviceLike, DTypeLike
from .parameter import Parameter, replace_data

_raw_data = Tensor._data.__get__


class Uninitialized:
    """The part of an uninitialized parameter or buffer; it has a dtype and a device, but no values."""

    __slots__ = ()
    becomes: type[Tensor]

    def materialize(self, shape: Sequence[int], device: DeviceLike = None, dtype: DTypeLike = None) -> None:
        """Gives it memory of this shape, without values; it is then an ordinary parameter or tensor.

        Args:
            device, dtype: by default its own.
        """
        device, dtype = device or self.device, dtype or self.dtype
        self.__class__ = self.becomes
        replace_data(self, empty(tuple(shape), device=device, dtype=dtype).data)

    def convert(self, function: Callable[[Tensor], Tensor]) -> None:
        """Sets dtype and device to those of `function(tensor)`."""
        Tensor._data.__set__(self, function(Tensor(_raw_data(self))).data)

    def _refuse(self) -> Array:
        raise ValueError(
            f"attempted to use an uninitialized parameter, {self!r}: call the module with a batch first, "
            "which initializes it"
        )

    data = _data = property(_refuse)

    @property
    def shape(self) -> tuple:
        raise RuntimeError(
            f"can't access the shape of an uninitialized parameter or buffer, {self!r}: call the module with "
            "a batch first, which initializes it"
        )

    @property
    def dtype(self) -> np.dtype:
        return _raw_data(self).dtype

    @property
    def device(self) -> Any:
        return _raw_data(self).device

    is_cpu = property(lambda self: self.device.type == "cpu")
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_meta = property(lambda self: self.device.type == "meta")

    def detach(self) -> Tensor:
        """Returns itself: there is nothing to detach."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict) -> Tensor:
        memo[id(self)] = out = type(self)(self.requires_grad, self.device, self.dtype)
        return out

    def __reduce__(self):
        return type(self), (self.requires_grad, str(self.device), self.dtype)


class UninitializedParameter(Uninitialized, Parameter):
    """A parameter without a shape.

    Args:
        requires_grad: whether it will be trained.
    """

    __slots__ = ()
    becomes = Parameter

    def __new__(cls, requires_grad: bool = True, device: DeviceLike = None, dtype: DTypeLike = None):
        out = Parameter(empty(0, device=device, dtype=dtype), requires_grad)
        out.__class__ = cls
        return out

    def __init__(self, *args: object, **kwargs: object):
        pass


class UninitializedBuffer(Uninitialized, Tensor):
    """A buffer without a shape."""

    __slots__ = ()
    becomes = Tensor

    def __new__(cls, requires_grad: bool = False, device: DeviceLike = None, dtype: DTypeLike = None):
        out = Tensor(empty(0, device=device, dtype=dtype), requires_grad=requires_grad)
        out.__class__ = cls
        return out

    def __init__(self, *args: object, **kwargs: object):
        pass


def is_lazy(tensor: object) -> bool:
    """Returns whether it is an uninitialized parameter or buffer."""
    return isinstance(tensor, Uninitialized)
