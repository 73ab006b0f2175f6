"""The blocks of a Llama for one new token, by one kernel: see `nn.fused_ops.numba.decoder`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np

from mytorch import Tensor, nn
from mytorch.backends.address import address_of
from mytorch.backends.device import CPU
from mytorch.core.grad_mode import _state
from mytorch.core.tensor import from_raw, increment_version, raw_of
from mytorch.nn.functional.attention import default_scale
from mytorch.nn.functional.quantization import BLOCK, Quantized
from mytorch.nn.functional.variant import uses_kernels
from mytorch.nn.fused_ops import registry

from .cache import KVCache

# What a plan depends on besides the weights.
_NUMBERS = ("eps", "num_heads", "num_kv_heads", "head_dim", "has_norms", "activation")
_Weight = tuple[np.ndarray | None, ...]  # weight, None, None, bias; or codes, scales, offsets, bias


def decode(
    blocks: nn.ModuleList, x: Tensor, angles: tuple[Tensor, Tensor], cache: KVCache, kind: type[nn.Module]
) -> Tensor | None:
    """Returns the result of all blocks for a new token, and stores its keys and values in the cache; None if
    the kernel isn't for this token, cache or one of the blocks.

    Args:
        kind: the class of the blocks that the kernel is for, `LlamaBlock`.
    """
    kernels = _kernels(x, cache)
    if kernels is None:
        return None
    if cache.plan is None or not cache.plan.is_valid():
        cache.plan = _Plan(blocks, cache, kernels, kind)
    plan = cache.plan
    if plan.arguments is None:
        return None
    cos, sin = angles
    y = kernels.blocks(raw_of(x), *plan.arguments, (raw_of(cos), raw_of(sin)), *plan.caches, cache.length)
    for layer in cache.layers:
        for written in layer:
            increment_version(written)
    return from_raw(y)


def _kernels(x: Tensor, cache: KVCache) -> ModuleType | None:
    """Returns the module of the kernel, for one token of one sequence that is stored behind the others."""
    if x.shape[:2] != (1, 1) or x.device is not CPU or not uses_kernels():
        return None
    if _state.recording or _state.autocast is not None or _state.stream is not None:
        return None
    if cache.padding is not None or cache.length >= cache.capacity:
        return None
    return registry.find("decoder", raw_of(x), raw_of(cache.layers[0][0]))


class _Plan:
    """What the kernel takes of the blocks and the cache: collecting it for each token would take longer than
    its use.

    Attributes:
        arguments: None if a layer is another one than those of a Llama or has hooks, or if the kernel isn't
            for its arrays.
        caches: the addresses of the caches, and their strides.
    """

    def __init__(self, blocks: nn.ModuleList, cache: KVCache, kernels: ModuleType, kind: type[nn.Module]):
        self._modules = list(blocks.modules())
        self._entries = [
            (entries, name, entry, entry._data._array if isinstance(entry, Tensor) else None)
            for module in self._modules
            for entries in (module._modules, module._parameters, module._buffers)
            for name, entry in entries.items()
        ]
        attributes = [vars(module) for module in self._modules]
        self._numbers = [(a, name, a[name]) for a in attributes for name in _NUMBERS if name in a]
        caches = [[raw_of(cached) for cached in layer] for layer in cache.layers]
        self.caches = _addresses(caches), caches[0][0].strides[1:3]
        is_known = self.is_valid() and all([type(block) is kind for block in blocks])
        self.arguments = _arguments(list(blocks), caches, kernels) if is_known else None

    def is_valid(self) -> bool:
        """Returns whether the blocks have the same layers, arrays and numbers as before, and no hooks."""
        for module in self._modules:
            if module._hooks is not None:
                return False
        for entries, name, entry, raw in self._entries:
            if entries.get(name) is not entry or (raw is not None and entry._data._array is not raw):
                return False
        return all([attributes.get(name) == number for attributes, name, number in self._numbers])


def _arguments(blocks: list[nn.Module], caches: list[list[np.ndarray]], kernels: ModuleType) -> tuple | None:
    """Returns epsilon, the addresses of norms and weights, the sizes, and the scale of the scores."""
    norms, weights = [_norms(block) for block in blocks], [_weights(block) for block in blocks]
    if None in norms or None in weights:
        return None
    first, epsilon = blocks[0].self_attn, norms[0][0][0]
    heads, kv_heads, features = sizes = _sizes(first)
    inputs, hidden = len(norms[0][0][1]), len(weights[0][4][0])
    queries, keys = (heads * features, inputs), (kv_heads * features, inputs)
    shapes = [queries, keys, keys, queries[::-1], (hidden, inputs), (hidden, inputs), (inputs, hidden)]
    arrays = [a for block in weights for weight in block for a in weight if a is not None]
    arrays += [a for block in norms for _, a in block]
    is_alike = (
        all([eps == epsilon and a.shape == (inputs,) for block in norms for eps, a in block])
        and all([[_shape(weight) for weight in block] == shapes for block in weights])
        and all([_sizes(block.self_attn) == sizes for block in blocks])
        and all([a.shape[1::2] == (kv_heads, features) for layer in caches for a in layer])
        and all([a.flags.c_contiguous and (a.dtype == np.float32 or a.dtype.kind in "iu") for a in arrays])
    )
    if not is_alike:
        return None
    found = np.array([[kernels.weight_of(*weight) for weight in block] for block in weights])
    of_norms = _addresses([[a for _, a in block] for block in norms])
    return epsilon, of_norms, found, (*sizes, hidden), default_scale(None, features)


def _addresses(arrays: list[list[np.ndarray]]) -> np.ndarray:
    return np.array([[address_of(a) for a in row] for row in arrays])


def _sizes(attention: nn.GroupedQueryAttention) -> tuple[int, int, int]:
    return attention.num_heads, attention.num_kv_heads, attention.head_dim


def _shape(weight: _Weight) -> tuple[int, ...]:
    """Returns the shape of the matrix."""
    codes, scales, *_ = weight
    return codes.shape if scales is None else (len(codes), BLOCK * scales.shape[1])


def _norms(block: nn.Module) -> list[tuple[float, np.ndarray]] | None:
    """Returns epsilon and weight of a block's norms; None if one isn't of a Llama."""
    norms = block.input_layernorm, block.post_attention_layernorm
    if any([type(norm) is not nn.RMSNorm or norm.eps is None or norm.weight is None for norm in norms]):
        return None
    return [(norm.eps, raw_of(norm.weight)) for norm in norms]


def _weights(block: nn.Module) -> list[_Weight] | None:
    """Returns the weights of queries, keys, values, output, gate, up and down; None if one isn't linear."""
    attention, mlp = block.self_attn, block.mlp
    if (type(attention), type(mlp)) != (nn.GroupedQueryAttention, nn.GatedMLP) or attention.has_norms:
        return None
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
