"""Quantizes the linear layers of a model."""

from __future__ import annotations

import warnings

from ..backends import tune
from .functional.quantization import BLOCK, require_format
from .layers.embedding import Embedding
from .layers.linear import Linear, LinearActivation
from .layers.quantized import QuantizedEmbedding, QuantizedLinear
from .module import Module

LINEAR = (Linear, LinearActivation)


def quantize(model: Module, format: str = "q8_0") -> Module:
    """Replaces the linear layers of a model, in place, by `nn.QuantizedLinear`, and returns the model.

    An embedding whose weight is also a linear layer's becomes an `nn.QuantizedEmbedding`, and the two share
    the quantized weight; other embeddings stay. So do linear layers whose rows can't be split into blocks of
    32, or whose weight belongs to another kind of layer, too: a warning names them. What is quantized can't
    be trained. `GroupedQueryAttention` and `GatedMLP` then have one layer for the projections of one input,
    `qkv_proj` and `gate_up_proj`.

    Args:
        format: "q8_0", "q4_0" or "q4_1": 8.5, 4.5 or 5 bits a weight instead of 32.

    Raises:
        ValueError: an unknown format; the model itself is a linear layer, which can't be replaced in place;
            a weight isn't finite, or too large for float16 scales.

    >>> model = mytorch.quantize(nn.Sequential(nn.Linear(64, 32), nn.ReLU()), "q8_0")
    >>> model[0]
    QuantizedLinear(in_features=64, out_features=32, bias=True, format='q8_0')
    """
    require_format(format, "quantize()")
    if type(model) in LINEAR:
        raise ValueError("quantize(): the model is a linear layer: use nn.QuantizedLinear.from_linear(model)")
    before = sum(p.nbytes for p in model.parameters())
    kept = _replace_layers(model, format)
    tune.release_freed_memory(before)
    if kept:
        warnings.warn(
            f"quantize(): these stay as they are, as their rows are no multiples of {BLOCK} or their weight "
            f"belongs to another kind of layer, too: {', '.join(kept)}",
            stacklevel=2,
        )
    return model


def _replace_layers(model: Module, format: str) -> list[str]:
    """Replaces the linear layers of a model; returns the names and shapes of those that can't be."""
    owners: dict[int, list[Module]] = {}  # of each parameter
    for module in model.modules():
        for parameter in module._parameters.values():
            owners.setdefault(id(parameter), []).append(module)
    made: dict[int, Module] = {}  # by the module that it replaces
    kept = []
    for name, module in model.named_modules():
        if type(module) not in LINEAR or id(module) in made:
            continue
        group = owners[id(module.weight)]
        if module.in_features % BLOCK or any(type(owner) not in (*LINEAR, Embedding) for owner in group):
            kept.append(f"{name} {tuple(module.weight.shape)}")
            continue
        made.update(zip(map(id, group), _replacements(group, format), strict=True))
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            parent._modules[name] = made.get(id(child), child)
    join_projections(model)
    return kept


def join_projections(model: Module) -> None:
    """Joins the layers that are quantized alike and have one input, in the modules that know such: a token is
    generated with fewer operations."""
    for module in list(model.modules()):
        if hasattr(module, "join_projections"):
            module.join_projections()


def _replacements(group: list[Module], format: str) -> list[Module]:
    """Returns the quantized layers for those of one weight, which they share, too."""
    layers: list[Module] = []
    for module in group:
        make = QuantizedEmbedding.from_embedding if type(module) is Embedding else QuantizedLinear.from_linear
        layers.append(make(module, format, layers[0] if layers else None))
    return layers
