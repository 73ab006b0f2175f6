"""
GPT-2: a decoder-only transformer.

    tokens → token embedding + position embedding → n_layer × Block → layer norm → logits

    Block:  x = x + attention(layer_norm(x))
            x = x + mlp(layer_norm(x))

The parameter names are those of Hugging Face's and nanoGPT's checkpoints; linear weights are (out, in), as
in nn.Linear, those of Hugging Face's files (in, out). The output layer shares its weight with the token
embedding.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; the initialisation and
the choice of biases follow nanoGPT, https://github.com/karpathy/nanoGPT
"""

from __future__ import annotations

import math
from os import PathLike

from mytorch import Tensor, nn
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.nn import functional as F
from mytorch.nn.functional.variant import uses_kernels

from . import hugging_face
from .cache import KVCache
from .gpt2_config import GPT2Config
from .language_model import LanguageModel


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention: a token attends to itself and to the previous tokens.

    Shapes: x (B, T, C) -> (B, T, C)
    """

    def __init__(self, config: GPT2Config, layer: int):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout_p)
        self.n_head, self.dropout_p, self.layer = config.n_head, config.dropout_p, layer

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        qkv = self.c_attn(x)  # (B, T, 3 C): queries, keys and values
        if cache is None:
            dropout_p = self.dropout_p if self.training else 0.0
            y = F.self_attention(qkv, self.n_head, dropout_p=dropout_p, is_causal=True)
        else:
            y = cache.attend(self.layer, qkv, self.n_head)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    """Two linear layers with a GELU in between; the hidden size is 4 C.

    Shapes: x (B, T, C) -> (B, T, C)
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        activation = "gelu_tanh" if config.activation == "gelu_new" else "gelu"
        self.c_fc = nn.LinearActivation(config.n_embd, 4 * config.n_embd, config.bias, activation)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout_p)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.c_fc(x)))


class Block(nn.Module):
    """Transformer block: attention and MLP, each with a preceding layer norm and a residual connection.

    Shapes: x (B, T, C) -> (B, T, C)
    """

    norm = nn.LayerNorm

    def __init__(self, config: GPT2Config, layer: int):
        super().__init__()
        self.ln_1 = self.norm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config, layer)
        self.ln_2 = self.norm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class FusedBlock(Block):
    """The same block, with each sum in the kernel of the norm that follows it, which reads both summands once
    and writes the sum beside its norm. So it returns its last sum as a pair.

    Shapes: x (B, T, C), or two such summands -> two summands (B, T, C)
    """

    norm = nn.AddLayerNorm

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor]:
        normed, x = self.ln_1(*x) if isinstance(x, tuple) else self.ln_1(x)
        normed, x = self.ln_2(self.attn(normed, cache), x)
        return self.mlp(normed), x


class GPT2(LanguageModel):
    """GPT-2 language model.

    Args:
        config: configuration; `GPT2Config.of_size("gpt2", activation="gelu_new")` is the published model.
        fused: whether the blocks are of the class `FusedBlock`, which makes fewer passes over memory than
            `Block`; by default as `use_fused` says. Parameters and results are the same.

    >>> from mytorch.models import GPT2, GPT2Config
    >>> model = GPT2(GPT2Config.of_size("nano", vocab_size=65, context_length=64))
    >>> model(mytorch.zeros((1, 8), dtype=int)).shape
    Size([1, 8, 65])
    """

    config_class = GPT2Config
    file_prefix = "transformer."
    file_ignored = ("lm_head.weight", "*.attn.bias", "*.attn.masked_bias")  # wte once more; causal masks
    file_transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    file_biases = True

    def __init__(self, config: GPT2Config, fused: bool | None = None):
        super().__init__()
        self.require_config(config)
        if fused is not None and not isinstance(fused, bool):
            raise TypeError(f"GPT2(): fused must be True, False or None, got {fused!r}")
        self.config, self.fused = config, uses_kernels() if fused is None else fused
        block = FusedBlock if self.fused else Block
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.context_length, config.n_embd),
            "drop": nn.Dropout(config.dropout_p),
            "h": nn.ModuleList([block(config, layer) for layer in range(config.n_layer)]),
            "ln_f": block.norm(config.n_embd, bias=config.bias),
        })
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self._init_weights()

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | PathLike, dtype: DTypeLike = "float32", device: DeviceLike = None,
        revision: str | None = None, fused: bool | None = None,
    ) -> GPT2:
        """Returns a pretrained model, in evaluation mode.

        Args:
            path_or_name, dtype, device, revision: see `PretrainedModel.from_pretrained`.
            fused: see the class.
        """
        return hugging_face.load(cls, path_or_name, dtype, device, revision, {"fused": fused})

    def _init_weights(self) -> None:
        """Initializes weights from N(0, std²), with std / sqrt(2 n_layer) for the residual projections.

        GPT-2's std of 0.02 is for n_embd = 768. The variance of a sum of n_embd products is independent of
        n_embd if std is proportional to 1 / sqrt(n_embd): narrower models use a larger std, and learn much
        faster. Embeddings use 0.02.
        """
        c = self.config
        linear_std = 0.02 * max(1.0, math.sqrt(768 / c.n_embd))
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.ndim == 2:
                std = 0.02 if name.startswith(("transformer.wte", "transformer.wpe")) else linear_std
                if name.endswith("c_proj.weight"):
                    std /= math.sqrt(2 * c.n_layer)
                nn.init.normal_(p, mean=0.0, std=std)

    def embed(self, idx: Tensor, positions: slice | Tensor) -> tuple[Tensor]:
        parts = self.transformer
        return (parts.drop(parts.wte(idx) + parts.wpe.weight[positions]),)  # (B, T, C)

    def blocks(self) -> nn.ModuleList:
        return self.transformer.h

    def normalize(self, x: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        norm = self.transformer.ln_f
        return norm(*x)[0] if isinstance(x, tuple) else norm(x)

    def attention_sizes(self) -> tuple[int, int]:
        return self.config.n_layer, self.config.n_embd
