"""Registers Tensors with the package einops: import it once, and `rearrange` and the others take them."""

from __future__ import annotations

import importlib

from einops import _backends

from ..core.tensor import Tensor
from ..nn.parameter import Parameter

__all__ = ["Backend"]


class Backend(_backends.TorchBackend):
    """PyTorch's backend, on mytorch's functions; einops finds it by its base class."""

    framework_name = "mytorch"

    def __init__(self):
        self.torch = importlib.import_module("mytorch")

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)

for _tensor in (Tensor(()), Parameter(())):
    _backends.get_backend(_tensor)  # from now on it knows their types, also in a compiled function
