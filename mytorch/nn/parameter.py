"""Parameter and Buffer: the tensors that belong to a module."""

from __future__ import annotations

from ..core.array import Array
from ..core.tensor import Tensor
from ..ops.subclasses import reduced_with_attributes
from ..ops.torch_function import disabled


class Parameter(Tensor):
    """A trained tensor: assigned to an attribute of a module, it is registered as a parameter.

    Args:
        data: see `Tensor`; the memory of a tensor or an array is shared. None: no elements.
        requires_grad: whether it is trained.

    >>> nn.Parameter(mytorch.ones(2)).requires_grad
    True
    """

    __torch_function__ = disabled
    __reduce__ = reduced_with_attributes  # as in PyTorch, while a deepcopy has none

    def __init__(self, data: object = None, requires_grad: bool = True):
        if data is None and hasattr(self, "_data"):
            return  # `super().__init__()` in a subclass: it has been made
        super().__init__(() if data is None else data)
        if isinstance(data, Tensor):
            self._version = data._version
        if requires_grad:
            self.requires_grad_()

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that belongs to a module's state and is not trained, such as a running mean.

    Args:
        data: see `Tensor`; the memory of a tensor or an array is shared.
        persistent: whether the state_dict contains it.

    >>> nn.Buffer(mytorch.ones(2)).requires_grad
    False
    """

    __slots__ = ("persistent",)
    __torch_function__ = disabled

    def __init__(self, data: object, *, persistent: bool = True):
        super().__init__(data)
        if isinstance(data, Tensor):
            self._version = data._version
        self.persistent = persistent

    def __deepcopy__(self, memo: dict) -> Buffer:
        out = super().__deepcopy__(memo)
        out.persistent = self.persistent
        return out

    def __reduce__(self):
        return _buffer, (self.data, self.persistent)


def _buffer(data: Array, persistent: bool) -> Buffer:
    return Buffer(data, persistent=persistent)


def replace_data(tensor: Tensor, data: Array) -> None:
    """Replaces the memory of a leaf, also by another dtype or device, in place."""
    if data is tensor.data:
        return
    node = tensor.node
    tensor.data = data
    tensor.grad_slot = tensor._node = None  # an optimizer's flat vector lays it out again
    if node is not None:
        tensor.requires_grad_()
        tensor.node.hooks = node.hooks
