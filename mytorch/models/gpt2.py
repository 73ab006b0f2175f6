"""
GPT-2: a decoder-only transformer.

    tokens → token embedding + position embedding → n_layer × Block → layer norm → logits

    Block:  x = x + attention(layer_norm(x))
            x = x + mlp(layer_norm(x))

The parameter names are those of Hugging Face's and nanoGPT's checkpoints; linear weights are (out, in), as in
nn.Linear. The output layer shares its weight with the token embedding.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; the initialisation and
the choice of biases follow nanoGPT, https://github.com/karpathy/nanoGPT
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os import PathLike

import numpy as np

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import functional as F
from mytorch.utils.reading import read_json


@dataclass
class GPT2Config:
    """The configuration of a GPT-2.

    Args:
        vocab_size: number of tokens in the vocabulary.
        context_length: maximum sequence length, in tokens.
        n_layer: number of blocks.
        n_head: number of attention heads per block.
        n_embd: embedding dimension.
        dropout_p: dropout probability.
        bias: whether linear layers and layer norms have a bias; False is slightly faster and better.
    """

    vocab_size: int = 50257
    context_length: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout_p: float = 0.0
    bias: bool = True

    def __post_init__(self):
        for name in ("vocab_size", "context_length", "n_layer", "n_head", "n_embd"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ValueError(f"{name} must be an int, got {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not isinstance(self.dropout_p, (int, float)) or not 0 <= self.dropout_p <= 1:
            raise ValueError(f"dropout_p must be a number between 0 and 1, got {self.dropout_p!r}")
        if self.n_embd % self.n_head:
            raise ValueError(
                f"n_embd must be divisible by n_head, got n_embd={self.n_embd} and n_head={self.n_head}"
            )

    @classmethod
    def of_size(cls, size: str, **changes) -> GPT2Config:
        """Returns the configuration nano, small, base (GPT-2 with 124 M parameters), medium, large or xl."""
        if size not in SIZES:
            raise ValueError(f"model size {size!r} is unknown; the sizes are {', '.join(SIZES)}")
        n_layer, n_head, n_embd = SIZES[size]
        return cls(**{"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, **changes})

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def load(cls, path: str | PathLike) -> GPT2Config:
        """Returns the configuration in a JSON file of `to_dict()`.

        Raises:
            OSError: the file can't be read.
            ValueError: it is damaged, or has other options.
        """
        content = read_json(path)
        try:
            if not isinstance(content, dict):
                raise ValueError(f"expected a JSON object, got {type(content).__name__}")
            return cls(**content)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is no configuration of a GPT-2: {error}") from error


SIZES = {  # layers, heads, features
    "nano": (4, 4, 128),  # nanoGPT's Shakespeare run on a CPU
    "small": (6, 6, 384),  # nanoGPT's Shakespeare run on a GPU
    "base": (12, 12, 768),  # GPT-2, 124 M
    "medium": (24, 16, 1024),
    "large": (36, 20, 1280),
    "xl": (48, 25, 1600),
}


class KVCache:
    """Cache of the keys and values of the previous tokens, so that only new tokens are computed.

    Args:
        config: configuration of the model.
        batch_size: number of sequences.
        dtype, device: dtype and device of the model's parameters.

    Attributes:
        layers: per layer, keys and values (batch_size, n_head, context_length, n_embd / n_head).
        length: number of cached tokens.
    """

    def __init__(self, config: GPT2Config, batch_size: int = 1, dtype=mytorch.float32, device=None):
        shape = (batch_size, config.n_head, config.context_length, config.n_embd // config.n_head)
        self.layers = [
            tuple([mytorch.zeros(shape, dtype=dtype, device=device) for _ in range(2)])  # keys, values
            for _ in range(config.n_layer)
        ]
        self.length = 0


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
            y = F.cached_self_attention(qkv, self.n_head, *cache.layers[self.layer], cache.length)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    """Two linear layers with a GELU in between; the hidden size is 4 C.

    Shapes: x (B, T, C) -> (B, T, C)
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.c_fc = nn.LinearActivation(config.n_embd, 4 * config.n_embd, config.bias, "gelu")
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout_p)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.c_fc(x)))


class Block(nn.Module):
    """Transformer block: attention and MLP, each with a preceding layer norm and a residual connection.

    The output of the MLP isn't added to the residual stream here, but by the next layer norm, which reads
    both once and writes the sum beside its norm:

        x, stream = block(x, stream)     # the next block's input is x + stream

    Shapes: x, stream (B, T, C); before the first block there is no stream.
    """

    def __init__(self, config: GPT2Config, layer: int):
        super().__init__()
        self.ln_1 = nn.AddLayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config, layer)
        self.ln_2 = nn.AddLayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, stream: Tensor | None = None, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor]:
        normed, stream = self.ln_1(x, stream)  # norm(x + stream), x + stream
        normed, stream = self.ln_2(self.attn(normed, cache), stream)
        return self.mlp(normed), stream


class GPT2(nn.Module):
    """GPT-2 language model.

    Args:
        config: configuration; `GPT2Config.of_size("base")` is the published model.
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.context_length, config.n_embd),
            "drop": nn.Dropout(config.dropout_p),
            "h": nn.ModuleList([Block(config, layer) for layer in range(config.n_layer)]),
            "ln_f": nn.AddLayerNorm(config.n_embd, bias=config.bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self._init_weights()

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

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, cache: KVCache | None = None,
        return_logits: bool = True,
    ):  # fmt: skip
        """Returns the logits, and the loss if targets are given.

        Args:
            idx: (B, T) int64 tokens.
            targets: (B, T) int64, the next token of each token; -1 is ignored by the loss.
            cache: keys and values of the previous tokens; those of `idx` are appended.
            return_logits: False returns None in place of logits beside a loss. Mixed precision would cast
                them, the largest tensor of a step, to float32.

        Returns:
            logits (B, T, vocab_size); with targets (logits, loss), where the loss is the mean cross entropy
            in nats, float32 for every dtype of the model.

        Raises:
            ValueError: the sequence is longer than `context_length`.
        """
        logits = self.lm_head(self.features(idx, cache))
        if targets is None:
            return logits
        rows = logits.view(-1, logits.shape[-1])
        # In float16 the loss would have three digits, and overflow when it is scaled.
        loss = F.cross_entropy(rows, targets.reshape(-1), ignore_index=-1, dtype=mytorch.float32)
        return logits if return_logits else None, loss

    def features(self, idx: Tensor, cache: KVCache | None = None) -> Tensor:
        """Returns the input (B, T, C) of the output layer; arguments and errors: see `forward`."""
        T, past = idx.shape[1], cache.length if cache is not None else 0
        if past + T > self.config.context_length:
            raise ValueError(f"{past + T} tokens exceed the context length of {self.config.context_length}")
        parts = self.transformer
        positions = parts.wpe.weight[past : past + T]
        x, stream = parts.drop(parts.wte(idx) + positions), None  # (B, T, C)
        for block in parts.h:
            x, stream = block(x, stream, cache)
        if cache is not None:
            cache.length += T
        return parts.ln_f(x, stream)[0]

    def num_parameters(self) -> int:
        """Returns the number of parameters; shared weights are counted once."""
        return sum(p.numel() for p in self.parameters())

    def parameter_groups(self, weight_decay: float) -> list[dict]:
        """Returns parameter groups for an optimizer: weight decay for matrices, none for vectors."""
        matrices = [p for p in self.parameters() if p.ndim >= 2]
        vectors = [p for p in self.parameters() if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        return [g for g in groups if g["params"]]

    @mytorch.no_grad()
    def stream(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: mytorch.Generator | None = None,
        use_cache: bool = True,
    ) -> Iterator[Tensor]:
        """Yields new tokens (B, 1), one at a time, sampled from softmax(logits / temperature).

        Args:
            idx: (B, T) prompt of at least one token; only the last `context_length` tokens are used.
            max_new_tokens: number of tokens to generate.
            temperature: 0 selects the most probable token.
            top_k: sample from the k most probable tokens.
            generator: random number generator.
            use_cache: cache keys and values; False is slower and yields the same tokens.
        """
        if idx.ndim != 2 or idx.shape[1] == 0:
            raise ValueError(f"expected a prompt (B, T) of at least one token, got shape {tuple(idx.shape)}")
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(f"temperature must be >= 0 and top_k >= 1, got {temperature} and {top_k}")
        weight, cache, new = self.transformer.ln_f.weight, None, None
        for _ in range(max_new_tokens):
            if cache is None or cache.length == self.config.context_length:
                inputs = idx[:, -self.config.context_length :]  # the cache is empty or full: positions shift
                cache = KVCache(self.config, idx.shape[0], weight.dtype, weight.device) if use_cache else None
            else:
                inputs = new
            logits = self.lm_head(self.features(inputs, cache)[:, -1])  # (B, vocab_size)
            new = sample(logits, temperature, top_k, generator)
            idx = mytorch.cat([idx, new], dim=1)
            yield new

    def generate(self, idx: Tensor, max_new_tokens: int, **options) -> Tensor:
        """Returns the prompt and the new tokens, (B, T + max_new_tokens); options: see `stream`."""
        return mytorch.cat([idx, *self.stream(idx, max_new_tokens, **options)], dim=1)


def sample(
    logits: Tensor, temperature: float, top_k: int | None, generator: mytorch.Generator | None
) -> Tensor:
    """Returns a token (B, 1) sampled from each row of logits (B, vocab_size)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits.float() / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        threshold = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, -math.inf)
    return mytorch.multinomial(logits.softmax(-1), 1, generator=generator)
