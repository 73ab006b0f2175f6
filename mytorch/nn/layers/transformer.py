"""The Transformer: an encoder, a decoder, and both together.

Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762; `norm_first`:
Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, https://arxiv.org/abs/2002.04745
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

from ...core.tensor import Tensor
from ...ops import full
from .. import functional as F
from .. import init
from ..container import ModuleList
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from .attention import MultiheadAttention
from .dropout import Dropout
from .linear import Linear
from .normalization import LayerNorm

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(Module):
    """Self-attention and a small network, each with a residual connection.

        x = norm1(x + attention(x)),  x = norm2(x + linear2(activation(linear1(x))))
        with `norm_first` x = x + attention(norm1(x)),  x = x + linear2(activation(linear1(norm2(x))))

    Args:
        d_model: features, E.
        nhead: heads of the attention.
        dim_feedforward: features between linear1 and linear2.
        dropout: the probability after each step in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: eps of the LayerNorms.
        batch_first: (N, L, E) instead of (L, N, E).
        norm_first: normalize before the steps instead of after them.
        bias: whether linear layers and norms have biases.

    Raises:
        RuntimeError: an unknown activation.

    >>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(mytorch.ones(4, 5, 8)).shape
    Size([4, 5, 8])
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks: see `F.multi_head_attention_forward`; `is_causal` says that `src_mask` is causal."""
        masks = src_mask, src_key_padding_mask, is_causal
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, *masks))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x, mask, key_padding_mask, is_causal):
        return self.dropout1(self.self_attn(x, x, x, key_padding_mask, False, mask, is_causal=is_causal)[0])

    def _ff_block(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention over an encoder's result and a small network, each with a residual
    connection.

    Args:
        d_model, nhead, …: those of `TransformerEncoderLayer`.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(mytorch.ones(4, 3, 8), mytorch.ones(4, 5, 8)).shape
    Size([4, 3, 8])
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **options)
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **options
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks of `tgt` over itself, and over `memory`, the encoder's result."""
        self_masks = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        cross = memory, memory_mask, memory_key_padding_mask, memory_is_causal
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *self_masks)
            x = x + self._mha_block(self.norm2(x), *cross)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *self_masks))
        x = self.norm2(x + self._mha_block(x, *cross))
        return self.norm3(x + self._ff_block(x))

    _sa_block = TransformerEncoderLayer._sa_block

    def _mha_block(self, x, memory, mask, key_padding_mask, is_causal):
        y = self.multihead_attn(x, memory, memory, key_padding_mask, False, mask, is_causal=is_causal)[0]
        return self.dropout2(y)

    def _ff_block(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other.

    Args:
        encoder_layer: copied `num_layers` times.
        norm: a last layer.
        enable_nested_tensor, mask_check: without effect.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerEncoder(layer, 2)(mytorch.ones(4, 5, 8)).shape
    Size([4, 5, 8])
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ):
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The masks go to every layer; `is_causal=None` detects whether `mask` is causal."""
        is_causal = _is_causal(mask, is_causal)
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other.

    Args:
        decoder_layer: copied `num_layers` times.
        norm: a last layer.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerDecoder(layer, 2)(mytorch.ones(4, 3, 8), mytorch.ones(4, 5, 8)).shape
    Size([4, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks go to every layer; `tgt_is_causal=None` detects whether `tgt_mask` is causal."""
        tgt_is_causal = _is_causal(tgt_mask, tgt_is_causal)
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to its result.

    Args:
        d_model, nhead, …: those of `TransformerEncoderLayer`.
        num_encoder_layers, num_decoder_layers: the number of layers of each.
        custom_encoder, custom_decoder: modules to use instead.

    >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(mytorch.ones(4, 5, 8), mytorch.ones(4, 3, 8)).shape
    Size([4, 3, 8])
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu, custom_encoder: Module | None = None,
        custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        options = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias, device, dtype,
        )
        stacks = (
            ("encoder", custom_encoder, TransformerEncoder, TransformerEncoderLayer, num_encoder_layers),
            ("decoder", custom_decoder, TransformerDecoder, TransformerDecoderLayer, num_decoder_layers),
        )
        for name, custom, stack, layer, count in stacks:
            if custom is None:
                norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
                custom = stack(layer(*options), count, norm)
            setattr(self, name, custom)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all matrices from the Xavier-uniform distribution."""
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:
        """(S, N, E) and (T, N, E), or without N, to (T, N, E).

        Raises:
            RuntimeError: a wrong number of features, or different batch sizes.
        """
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"the batch number of src and tgt must be equal, got {src.shape}, {tgt.shape}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be d_model, {self.d_model}, "
                f"got {src.shape} and {tgt.shape}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike = None, dtype: DTypeLike = None
    ) -> Tensor:
        """Returns the causal mask, (sz, sz): -inf right of the diagonal, else 0."""
        return full((sz, sz), -math.inf, device=device, dtype=dtype).triu(1)


def _activation(activation):
    if not isinstance(activation, str):
        return activation
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"activation should be one of {sorted(ACTIVATIONS)}, not {activation!r}")
    return ACTIVATIONS[activation]


def _copies(layer, count):
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


def _is_causal(mask, is_causal):
    """Returns `is_causal`, or if it is None, whether the mask is causal."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    length = mask.shape[-2]
    if tuple(mask.shape) != (length, length) or mask.is_meta:
        return False
    causal = Transformer.generate_square_subsequent_mask(length, mask.device)
    return bool((mask == (causal != 0 if mask.dtype == bool else causal)).all())
