"""Registers Tensors with the package einops: import it once, and `rearrange` and the others take them."""

from __future__ import annotations

import importlib

from einops import _backends

from ..core.tensor import Tensor
from ..nn.parameter import Parameter

__all__ = ["Backend"]


class Backend(_backends.AbstractBackend):
    """PyTorch's backend, on mytorch's functions; einops finds it by its base class."""

    framework_name = "mytorch"

    def __init__(self):
        self.torch = importlib.import_module("mytorch")

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)


for _name, _method in vars(_backends.TorchBackend).items():
    if _name not in (*vars(Backend), "layers"):  # those that don't import PyTorch
        setattr(Backend, _name, _method)
_backends._loaded_backends[Backend.framework_name] = _backend = Backend()
for _kind in (Tensor, Parameter):
    _backends._type2backend[_kind] = _backend  # known from now on, also in a compiled function
