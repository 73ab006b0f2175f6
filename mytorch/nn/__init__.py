"""Building blocks of models: modules, layers, their functions, initial values and helpers for training."""

import importlib

from . import functional, fused_ops, init, parallel, utils
from .container import ModuleDict, ModuleList, Sequential
from .functional.linear_cross_entropy import LinearCrossEntropyOptions
from .layers import *  # noqa: F403
from .layers import GELU as GeLU  # as the original spells them
from .layers import LayerNorm as Layernorm
from .layers import __all__ as _layers
from .module import Module
from .parallel import DataParallel
from .parameter import Buffer, Parameter
from .parameter_container import ParameterDict, ParameterList
from .uninitialized import UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer", "DataParallel", "GeLU", "Layernorm", "LinearCrossEntropyOptions", "Module", "ModuleDict",
    "ModuleList", "Parameter", "ParameterDict", "ParameterList", "Sequential", "UninitializedBuffer",
    "UninitializedParameter", "functional", "init", "utils",
    *_layers,
]  # fmt: skip


def __getattr__(name: str):
    """Imports at its first use what few programs need, and what lies above (see `parallel.ABOVE`)."""
    if name in ("attention", "modules"):
        return importlib.import_module(f"mytorch.nn.{name}")
    if name not in parallel.ABOVE:
        raise AttributeError(f"module 'mytorch.nn' has no attribute {name!r}")
    return parallel.load_above(name)
