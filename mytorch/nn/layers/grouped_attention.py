"""The layers of Llama's blocks: attention whose heads share keys and values, and a gated MLP."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from .linear import Linear
from .normalization import RMSNorm


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
    ):  # fmt: skip
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

    def forward(
        self, x: Tensor, context: Tensor | None = None, angles: tuple[Tensor, Tensor] | None = None,
        attn_mask: Tensor | None = None, is_causal: bool = False,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns the attention (B, T, E) of x.

        Args:
            x: (B, T, E)
            context: (B, S, context_dim), what keys and values are computed of; x by default.
            angles: cos and sin by which queries and keys are rotated: `RotaryEmbedding.angles`.
            attn_mask, is_causal: see `F.scaled_dot_product_attention`.
            attend: computes the attention of q, k and v instead, as with a cache.
        """
        context = x if context is None else context
        q = self._heads(self.q_proj(x), self.num_heads)
        k = self._heads(self.k_proj(context), self.num_kv_heads)
        v = self._heads(self.v_proj(context), self.num_kv_heads)
        if self.has_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        if angles is not None:
            q, k = F.rotary_embedding(q, *angles), F.rotary_embedding(k, *angles)
        if attend is not None:
            y = attend(q, k, v)
        else:
            dropout = self.dropout if self.training else 0.0
            window = self.window if is_causal else None
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask, dropout, is_causal, enable_gqa=True, sliding_window=window
            )
        B, T = x.shape[:2]
        return self.o_proj((y if T == 1 else y.transpose(1, 2)).reshape(B, T, -1))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """Returns (B, heads, T, head_dim) of (B, T, heads * head_dim)."""
        B, T = x.shape[:2]
        if T == 1:  # generating: the same memory, one operation less
            return x.view(B, heads, 1, self.head_dim)
        return x.view(B, T, heads, self.head_dim).transpose(1, 2)

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
    ):  # fmt: skip
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.gate_proj = Linear(features, hidden_features, bias, **options)
        self.up_proj = Linear(features, hidden_features, bias, **options)
        self.down_proj = Linear(hidden_features, features, bias, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
