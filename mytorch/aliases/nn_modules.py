"""PyTorch's `nn.modules`: the layers; `nn.modules.conv` and the others are in `aliases.FORWARDS`."""

from mytorch.aliases import lazily as _lazily
from mytorch.nn.container import ModuleDict, ModuleList, Sequential
from mytorch.nn.layers import *  # noqa: F403
from mytorch.nn.layers import __all__ as _layers
from mytorch.nn.module import Module
from mytorch.nn.parameter_container import ParameterDict, ParameterList

__all__ = ["Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential", *_layers]

__getattr__, __dir__ = _lazily(globals())
