"""
Llama: a decoder-only transformer with rotary positions, RMS norms, shared keys and gated MLPs.

    tokens → token embedding → num_hidden_layers × LlamaBlock → RMS norm → logits

    LlamaBlock:  x = x + self_attn(input_layernorm(x))
                 x = x + mlp(post_attention_layernorm(x))

The names of parameters and options are Hugging Face's. With their options this is also the architecture of
SmolLM2, Mistral (a sliding window), Qwen2 (biases of queries, keys and values) and Qwen3 (norms of queries
and keys).

Source: Touvron et al., "LLaMA", 2023, https://arxiv.org/abs/2302.13971, and "Llama 2", 2023,
https://arxiv.org/abs/2307.09288; Dubey et al., "The Llama 3 Herd of Models", 2024,
https://arxiv.org/abs/2407.21783
"""

from __future__ import annotations

import functools
import math
from os import PathLike
from pathlib import Path

from mytorch import Tensor, nn
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike

from . import gguf
from .cache import KVCache
from .decoder import decode
from .language_model import LanguageModel
from .llama_config import LlamaConfig


class LlamaBlock(nn.Module):
    """Transformer block: attention and gated MLP, each with a preceding RMS norm and a residual connection.

    Shapes: x (B, T, C) -> (B, T, C)
    """

    def __init__(self, config: LlamaConfig, layer: int):
        super().__init__()
        c, self.layer = config, layer
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = nn.GroupedQueryAttention(
            c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.qkv_bias, c.o_bias,
            c.rms_norm_eps if c.qk_norm else None, c.sliding_window,
        )
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = nn.GatedMLP(c.hidden_size, c.intermediate_size, c.mlp_bias)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: KVCache | None = None) -> Tensor:
        attend = None if cache is None else functools.partial(cache.attend, self.layer)
        normed = self.input_layernorm(x)
        x = x + self.self_attn(normed, angles=angles, is_causal=cache is None, attend=attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(LanguageModel):
    """Llama language model.

    Args:
        config: configuration; `LlamaConfig.of_size("135m")` is SmolLM2's.

    >>> from mytorch.models import Llama, LlamaConfig
    >>> config = LlamaConfig(65, 32, 64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    >>> Llama(config)(mytorch.zeros((1, 8), dtype=int)).shape
    Size([1, 8, 65])
    """

    config_class = LlamaConfig
    file_prefix = "model."
    file_ignored = ("*rotary_emb.inv_freq", "lm_head.weight")  # a table; where it is tied, no parameter

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.require_config(config)
        self.config = c = config
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(c.vocab_size, c.hidden_size),
            "layers": nn.ModuleList([LlamaBlock(c, layer) for layer in range(c.num_hidden_layers)]),
            "norm": nn.RMSNorm(c.hidden_size, c.rms_norm_eps),
        })
        self.rotary = nn.RotaryEmbedding(c.head_dim, c.rope_theta, c.rope_scaling)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        for name, p in self.named_parameters():
            if p.ndim == 2:  # residual projections are smaller: their sum grows with the number of layers
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = 1 / math.sqrt(2 * c.num_hidden_layers) if residual else 1
                nn.init.normal_(p, std=c.initializer_range * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def embed(self, idx: Tensor, positions: slice | Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self.model.embed_tokens(idx)  # (B, T, C)
        return x, self.rotary.angles(positions, x.device, x.dtype)

    def blocks(self) -> nn.ModuleList:
        return self.model.layers

    def normalize(self, x: Tensor) -> Tensor:
        return self.model.norm(x)

    def run(self, x: Tensor, *others: object, cache: KVCache | None) -> Tensor:
        decoded = None if cache is None else decode(self.model.layers, x, *others, cache, LlamaBlock)
        return super().run(x, *others, cache=cache) if decoded is None else decoded

    def attention_sizes(self) -> tuple[int, int]:
        return self.config.num_hidden_layers, self.config.num_attention_heads * self.config.head_dim

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | PathLike, dtype: DTypeLike = "float32", device: DeviceLike = None,
        revision: str | None = None, quantized: bool = False,
    ) -> Llama:
        """Returns a pretrained model, also that of a GGUF file; see `PretrainedModel.from_pretrained`.

        Args:
            quantized: keep the quantised weights of a GGUF file as they are: `nn.QuantizedLinear`.
        """
        if Path(path_or_name).suffix == ".gguf":
            return gguf.load(cls, path_or_name, dtype, device, quantized)
        if quantized:
            raise ValueError(f"{path_or_name}: no GGUF file, so not quantised; see mytorch.quantize")
        return super().from_pretrained(path_or_name, dtype, device, revision)
