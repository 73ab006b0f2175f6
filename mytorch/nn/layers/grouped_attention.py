"""The layers of Llama's blocks: attention whose heads share keys and values, and a gated MLP."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from ...ops import cat
from .. import functional as F
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from .linear import Linear
from .normalization import RMSNorm
from .quantized import QuantizedLinear

Angles = tuple[Tensor, Tensor]


class GroupedQueryAttention(Module):
    """Attention with several heads of queries for each head of keys and values.

        y = o_proj(softmax(q k^T / sqrt(head_dim) + mask) v)
        q = q_norm(q_proj(x)),  k = k_norm(k_proj(c)),  v = v_proj(c);  c = x in self-attention

    With one head of keys and values this is multi-query attention, with as many as of queries the usual one.

    Args:
        embed_dim: E, of the input and the result.
        num_heads: heads of the queries.
        num_kv_heads: heads of keys and values, a divisor of `num_heads`; as many by default.
        head_dim: features of a head; E / num_heads by default.
        bias: whether the projections of queries, keys and values have biases.
        out_bias: whether o_proj has one; `bias` by default.
        qk_norm: normalize the queries and keys of each head by RMS norms, with this epsilon.
        window: in causal attention, a query attends to this many keys, its own the last of them.
        dropout: the probability to drop a weight in training.
        context_dim: features of the context in cross attention; E by default.

    Raises:
        ValueError: `num_heads` isn't a multiple of `num_kv_heads`; E isn't one of `num_heads`, without
            `head_dim`.
    Source: Shazeer, 2019, https://arxiv.org/abs/1911.02150 (one head); Ainslie et al., 2023,
        https://arxiv.org/abs/2305.13245 (groups); Henry et al., 2020, https://arxiv.org/abs/2010.04245
        (norms of queries and keys).

    >>> attention = nn.GroupedQueryAttention(8, num_heads=4, num_kv_heads=2)
    >>> attention(mytorch.randn(1, 5, 8), is_causal=True).shape
    Size([1, 5, 8])
    """

    def __init__(
        self, embed_dim: int, num_heads: int, num_kv_heads: int | None = None, head_dim: int | None = None,
        bias: bool = False, out_bias: bool | None = None, qk_norm: float | None = None,
        window: int | None = None, dropout: float = 0.0, context_dim: int | None = None,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads={num_heads} is no multiple of num_kv_heads={num_kv_heads}")
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim} is no multiple of num_heads={num_heads}: give head_dim")
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.window, self.dropout = window, dropout
        options = {"device": device, "dtype": dtype}
        keys = num_kv_heads * self.head_dim
        self.q_proj = Linear(embed_dim, num_heads * self.head_dim, bias, **options)
        self.k_proj = Linear(context_dim or embed_dim, keys, bias, **options)
        self.v_proj = Linear(context_dim or embed_dim, keys, bias, **options)
        out_bias = bias if out_bias is None else out_bias
        self.o_proj = Linear(num_heads * self.head_dim, embed_dim, out_bias, **options)
        if qk_norm is not None:
            self.q_norm = RMSNorm(self.head_dim, qk_norm, **options)
            self.k_norm = RMSNorm(self.head_dim, qk_norm, **options)
        self.has_norms = qk_norm is not None
        self.qkv_proj: Module | None = None

    def forward(
        self, x: Tensor, context: Tensor | None = None, angles: Angles | None = None,
        attn_mask: Tensor | None = None, is_causal: bool = False,
        attend: Callable[[Tensor, int, Angles | None], Tensor] | None = None,
    ) -> Tensor:
        """Returns the attention (B, T, E) of x.

        Args:
            x: (B, T, E)
            context: (B, S, context_dim), what keys and values are computed of; x by default.
            angles: cos and sin by which queries and keys are rotated: `RotaryEmbedding.angles`.
            attn_mask, is_causal: see `F.scaled_dot_product_attention`.
            attend: computes self-attention of queries, keys and values side by side: `KVCache.attend`.

        Raises:
            ValueError: both `context` and `attend` are given.
        """
        if attend is not None:
            if context is not None:
                raise ValueError("attend computes self-attention: it takes no context")
            return self.o_proj(attend(self._packed(x), self.num_heads, angles))
        q, k, v = (self._heads(y) for y in self._project(x, x if context is None else context))
        if angles is not None:
            q, k = F.rotary_embedding(q, *angles), F.rotary_embedding(k, *angles)
        dropout = self.dropout if self.training else 0.0
        window = self.window if is_causal else None
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout, is_causal, enable_gqa=True, sliding_window=window
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def _packed(self, x: Tensor) -> Tensor:
        """Returns queries, keys and values side by side."""
        if self.qkv_proj is None or self.has_norms:
            return cat(self._project(x, x), -1)
        return self.qkv_proj(x)

    def _project(self, x: Tensor, context: Tensor) -> list[Tensor]:
        """Returns queries, keys and values, (B, T, heads * head_dim)."""
        if self.qkv_proj is None:
            q, k, v = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        else:
            keys = self.num_kv_heads * self.head_dim
            sizes = self.num_heads * self.head_dim, keys, keys
            q, k, v = self.qkv_proj(x).split(sizes, -1)
            if context is not x:
                _, k, v = self.qkv_proj(context).split(sizes, -1)
        if self.has_norms:
            q, k = self._norm(self.q_norm, q), self._norm(self.k_norm, k)
        return [q, k, v]

    def _norm(self, norm: Module, y: Tensor) -> Tensor:
        """Returns (B, T, heads * head_dim) with each head normalized."""
        return norm(y.unflatten(-1, (-1, self.head_dim))).flatten(-2)

    def _heads(self, y: Tensor) -> Tensor:
        """Returns (B, heads, T, head_dim) of (B, T, heads * head_dim)."""
        return y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def join_projections(self) -> None:
        """Replaces q_proj, k_proj and v_proj by one layer, qkv_proj, if they are quantized alike."""
        _join(self, "qkv_proj", ("q_proj", "k_proj", "v_proj"))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}"


class GatedMLP(Module):
    """The gated MLP  down_proj(silu(gate_proj(x)) * up_proj(x)).

    Args:
        features: of the input and the result.
        hidden_features: of the gate; 8 / 3 of `features` has as many parameters as an MLP of 4 times.
        bias: whether the projections have biases.

    (`nn.SwiGLU` is the activation alone.)
    Source: Shazeer, "GLU Variants Improve Transformer", 2020, https://arxiv.org/abs/2002.05202

    >>> nn.GatedMLP(6, 16)(mytorch.ones(2, 6)).shape
    Size([2, 6])
    """

    def __init__(
        self, features: int, hidden_features: int, bias: bool = False, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.gate_proj = Linear(features, hidden_features, bias, **options)
        self.up_proj = Linear(features, hidden_features, bias, **options)
        self.down_proj = Linear(hidden_features, features, bias, **options)
        self.gate_up_proj: Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_up_proj is not None:
            return self.down_proj(F.swiglu(self.gate_up_proj(x)))
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    def join_projections(self) -> None:
        """Replaces gate_proj and up_proj by one layer, gate_up_proj, if they are quantized alike."""
        _join(self, "gate_up_proj", ("gate_proj", "up_proj"))


def _join(module: Module, name: str, parts: tuple[str, ...]) -> None:
    """Replaces layers of a module by one of this name, if they can be joined and aren't yet."""
    layers = [module._modules[part] for part in parts if part in module._modules]
    joined = QuantizedLinear.joined(layers) if len(layers) == len(parts) else None
    if joined is not None:
        for part in parts:
            delattr(module, part)
        setattr(module, name, joined)
