"""Attention: with several heads and their projections, or of given queries, keys and values."""

from __future__ import annotations

from ...core.tensor import Tensor
from ...ops import empty
from .. import functional as F
from .. import init
from ..functional.dropout import check_probability
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter
from .linear import Linear


class MultiheadAttention(Module):
    """Attention with several heads, each of E / num_heads features: `F.multi_head_attention_forward`.

    Args:
        embed_dim: E, of the query and the result.
        num_heads: a divisor of E.
        dropout: the probability to drop a weight in training.
        bias: whether the projections have biases.
        add_bias_kv: learn one more key and value.
        add_zero_attn: add a key and a value of zeros.
        kdim, vdim: features of key and value; E by default.
        batch_first: (N, L, E) instead of (L, N, E).

    Attributes:
        in_proj_weight: (3 E, E), the projections of query, key and value, Xavier-uniform; with a `kdim` or
            `vdim` q_proj_weight (E, E), k_proj_weight (E, kdim) and v_proj_weight (E, vdim) instead.
        in_proj_bias: (3 E,), zeros, or None.
        out_proj: the Linear layer that joins the heads.
        bias_k, bias_v: (1, 1, E), Xavier-normal, or None.

    Raises:
        AssertionError: `num_heads` doesn't divide E.
        ValueError: one of them isn't positive.

    >>> attention = nn.MultiheadAttention(8, num_heads=2, batch_first=True)
    >>> x = mytorch.randn(4, 5, 8)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (Size([4, 5, 8]), Size([4, 5, 5]))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got {embed_dim} and {num_heads}"
            )
        if embed_dim % num_heads:
            raise AssertionError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        one = self.kdim == self.vdim == embed_dim
        options = {"device": device, "dtype": dtype}
        for name, columns in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = None if one else Parameter(empty((embed_dim, columns), **options))
            self.register_parameter(f"{name}_proj_weight", weight)
        weight = Parameter(empty((3 * embed_dim, embed_dim), **options)) if one else None
        self.register_parameter("in_proj_weight", weight)
        in_proj_bias = Parameter(empty((3 * embed_dim,), **options)) if bias else None
        self.register_parameter("in_proj_bias", in_proj_bias)
        self.out_proj = Linear(embed_dim, embed_dim, bias, **options)
        for name in ("bias_k", "bias_v"):
            extra = Parameter(empty((1, 1, embed_dim), **options)) if add_bias_kv else None
            self.register_parameter(name, extra)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns (result, weights or None); the arguments are those of `F.multi_head_attention_forward`."""
        swap = self.batch_first and query.ndim == 3
        if swap:
            swapped = {id(x): x.transpose(0, 1) for x in (query, key, value)}  # one tensor stays one
            query, key, value = (swapped[id(x)] for x in (query, key, value))
        y, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
            self.bias_k, self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight,
            self.out_proj.bias, self.training, key_padding_mask, need_weights, attn_mask,
            self.in_proj_weight is None, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )
        return y.transpose(0, 1) if swap else y, weights


class ScaledDotProduct(Module):
    """Attention without parameters, of (..., L, E), (..., S, E) and (..., S, Ev):
    `F.scaled_dot_product_attention`. (PyTorch has no such layer.)

    Args:
        dropout: the probability to drop a weight in training.
        scale, enable_gqa: see the function.
    """

    window: int | None = None

    def __init__(self, dropout: float = 0.0, scale: float | None = None, enable_gqa: bool = False):
        super().__init__()
        check_probability(dropout)
        self.dropout, self.scale, self.enable_gqa = dropout, scale, enable_gqa

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        options = self.scale, self.enable_gqa, self.window
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout, is_causal, *options)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}, scale={self.scale}, enable_gqa={self.enable_gqa}"


class SlidingWindowAttention(ScaledDotProduct):
    """Causal attention of each query to the last `window` keys, its own included.

    Args:
        window: the number of keys.
        dropout, scale, enable_gqa: see `ScaledDotProduct`.

    Raises:
        ValueError: the window isn't positive.
    """

    def __init__(
        self, window: int, dropout: float = 0.0, scale: float | None = None, enable_gqa: bool = False
    ):
        super().__init__(dropout, scale, enable_gqa)
        if window <= 0:
            raise ValueError(f"SlidingWindowAttention: window must be positive, got {window}")
        self.window = window

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return super().forward(query, key, value, is_causal=True)

    def extra_repr(self) -> str:
        return f"window={self.window}, {super().extra_repr()}"
