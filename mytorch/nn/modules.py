"""PyTorch's `nn.modules.*`: the layers, by the modules in which PyTorch defines them."""

import importlib

from ..aliases import alias
from .container import ModuleDict, ModuleList, Sequential
from .layers import *  # noqa: F403
from .layers import __all__ as _layers
from .module import Module
from .parameter_container import ParameterDict, ParameterList

__all__ = ["Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential", *_layers]

__path__: list[str] = []  # a package, all of whose modules are made here
MODULES = {
    "activation": "layers.activation layers.softmax layers.attention",
    "batchnorm": "layers.batch_norm layers.lazy",
    "channelshuffle": "layers.upsampling",
    "container": "container parameter_container",
    "conv": "layers.conv layers.lazy",
    "distance": "layers.distance",
    "dropout": "layers.dropout",
    "flatten": "layers.linear",
    "fold": "layers.conv",
    "instancenorm": "layers.batch_norm layers.lazy",
    "linear": "layers.linear layers.lazy",
    "loss": "layers.loss layers.margin_loss",
    "module": "module",
    "normalization": "layers.normalization",
    "padding": "layers.padding",
    "pixelshuffle": "layers.upsampling",
    "pooling": "layers.pooling",
    "rnn": "layers.rnn layers.rnn_cell",
    "sparse": "layers.embedding",
    "transformer": "layers.transformer",
    "upsampling": "layers.upsampling",
    "utils": "module_utils",
}
for _name, _sources in MODULES.items():
    alias(f"{__name__}.{_name}", *[importlib.import_module(f"mytorch.nn.{s}") for s in _sources.split()])
