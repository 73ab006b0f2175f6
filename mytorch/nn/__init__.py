"""Building blocks of models: modules, layers, their functions, initial values and helpers for training."""

from . import functional, fused_ops, init, utils
from .container import ModuleDict, ModuleList, Sequential
from .functional.linear_cross_entropy import LinearCrossEntropyOptions
from .layers import *  # noqa: F403
from .layers import GELU as GeLU  # as the original spells them
from .layers import LayerNorm as Layernorm
from .layers import __all__ as _layers
from .module import Module
from .parameter import Buffer, Parameter
from .parameter_container import ParameterDict, ParameterList

__all__ = [
    "Buffer", "GeLU", "Layernorm", "LinearCrossEntropyOptions", "Module", "ModuleDict", "ModuleList",
    "Parameter", "ParameterDict", "ParameterList", "Sequential", "functional", "init", "utils",
    *_layers,
]  # fmt: skip
