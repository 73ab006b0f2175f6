"""A block of a Llama for one new token, by a kernel: see `nn.fused_ops.numba.decoder_block`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mytorch import Tensor, nn
from mytorch.backends.device import CPU
from mytorch.core.grad_mode import _state
from mytorch.core.tensor import from_raw, increment_version, raw_of
from mytorch.nn.functional.attention import default_scale
from mytorch.nn.functional.composite import is_default
from mytorch.nn.functional.quantization import Quantized
from mytorch.nn.fused_ops import registry

from .cache import KVCache

if TYPE_CHECKING:
    from .llama import LlamaBlock

# What a plan depends on besides the weights.
_NUMBERS = ("eps", "num_heads", "num_kv_heads", "head_dim", "has_norms", "activation")
_Weight = tuple[np.ndarray | None, ...]  # weight, None, None, bias; or codes, scales, offsets, bias


def decode(block: LlamaBlock, x: Tensor, angles: tuple[Tensor, Tensor], cache: KVCache) -> Tensor | None:
    """Returns the block's result for a new token, and stores its key and value in the cache; None if the
    kernel isn't for this token, cache or block."""
    kernels = _kernels(x, cache)
    if kernels is None:
        return None
    plan = cache.plans.get(block)
    if plan is None or not plan.is_valid():
        plan = cache.plans[block] = _Plan(block, kernels)
    if plan.arguments is None:
        return None
    caches = cache.layers[block.layer]
    y = kernels.decoder_block(
        raw_of(x), *plan.arguments, tuple(map(raw_of, angles)), tuple(map(raw_of, caches)), cache.length
    )
    for written in caches:
        increment_version(written)
    return from_raw(y)


def _kernels(x: Tensor, cache: KVCache) -> ModuleType | None:
    """Returns the module of the kernel, for one token of one sequence that is stored behind the others."""
    if x.shape[:2] != (1, 1) or x.device is not CPU or _state.recording or _state.autocast is not None:
        return None
    if cache.padding is not None or cache.length >= cache.capacity or not is_default():
        return None
    return registry.find("decoder_block", raw_of(x), raw_of(cache.layers[0][0]))


class _Plan:
    """What the kernel takes of a block: collecting it for each token would take longer than its use.

    Attributes:
        arguments: None if a layer is another one than those of a Llama or has hooks, or if the kernel isn't
            for its arrays.
    """

    def __init__(self, block: LlamaBlock, kernels: ModuleType):
        self._modules = list(block.modules())
        self._entries = [
            (entries, name, entry, entry._data._array if isinstance(entry, Tensor) else None)
            for module in self._modules
            for entries in (module._modules, module._parameters, module._buffers)
            for name, entry in entries.items()
        ]
        attributes = [vars(module) for module in self._modules]
        self._numbers = [(a, name, a[name]) for a in attributes for name in _NUMBERS if name in a]
        self.arguments = _arguments(block, kernels) if self.is_valid() else None

    def is_valid(self) -> bool:
        """Returns whether the block has the same layers, arrays and numbers as before, and no hooks."""
        for module in self._modules:
            if module._hooks is not None:
                return False
        for entries, name, entry, raw in self._entries:
            if entries.get(name) is not entry or (raw is not None and entry._data._array is not raw):
                return False
        return all([attributes.get(name) == number for attributes, name, number in self._numbers])


def _arguments(block: LlamaBlock, kernels: ModuleType) -> tuple | None:
    """Returns epsilon, the weights of the norms, those of the projections, and the scale of the scores."""
    attention, mlp = block.self_attn, block.mlp
    norms = block.input_layernorm, block.post_attention_layernorm
    kinds = type(attention), type(mlp), *map(type, norms)
    if kinds != (nn.GroupedQueryAttention, nn.GatedMLP, nn.RMSNorm, nn.RMSNorm) or attention.has_norms:
        return None
    weights = _weights(attention, mlp)
    if weights is None or norms[0].eps is None or norms[0].eps != norms[1].eps:
        return None
    if norms[0].weight is None or norms[1].weight is None:
        return None
    of_norms = tuple([raw_of(norm.weight) for norm in norms])
    formats = {(weight[0].dtype, weight[2] is None) for weight in weights}
    arrays = [*of_norms, *[a for weight in weights for a in weight if a is not None]]
    floats = [a for a in arrays if a.dtype.kind == "f"]
    if len(formats) > 1 or not all([a.flags.c_contiguous and a.flags.writeable for a in arrays]):
        return None
    if any([a.dtype != np.float32 for a in floats]):
        return None
    return norms[0].eps, of_norms, [kernels.weight_of(*weight) for weight in weights], default_scale(
        None, attention.head_dim
    )


def _weights(attention: nn.Module, mlp: nn.Module) -> list[_Weight] | None:
    """Returns the weights of queries, keys, values, output, gate, up and down; None if one isn't linear."""
    found = {name: _weight(layer) for name, layer in {**attention._modules, **mlp._modules}.items()}
    if None in found.values():
        return None
    if "qkv_proj" in found:
        queries, keys = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
        found |= _parts(found["qkv_proj"], {"q_proj": queries, "k_proj": keys, "v_proj": keys})
    if "gate_up_proj" in found:
        hidden = len(found["gate_up_proj"][0]) // 2
        found |= _parts(found["gate_up_proj"], {"gate_proj": hidden, "up_proj": hidden})
    names = "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
    return [found[name] for name in names]


def _weight(layer: nn.Module | None) -> _Weight | None:
    """Returns the arrays of a linear layer."""
    if type(layer) is nn.Linear:
        arrays: Sequence[Tensor | None] = (layer.weight, None, None, layer.bias)
    elif type(layer) is nn.QuantizedLinear and layer.activation is None:
        arrays = [*[layer._buffers[name] for name in Quantized._fields], layer.bias]
    else:
        return None
    return tuple([None if a is None else raw_of(a) for a in arrays])


def _parts(weight: _Weight, rows: dict[str, int]) -> dict[str, _Weight]:
    """Returns the parts of a joined layer's weight, by their names."""
    ends = np.cumsum([0, *rows.values()]).tolist()
    parts = [tuple([None if a is None else a[i:j] for a in weight]) for i, j in pairwise(ends)]
    return dict(zip(rows, parts, strict=True))
