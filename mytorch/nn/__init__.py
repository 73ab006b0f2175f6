"""Building blocks of models: modules, layers, their functions, initial values and helpers for training."""

from ..aliases import lazily as _lazily
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
]

__getattr__, __dir__ = _lazily(globals())
