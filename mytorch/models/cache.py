"""The keys and values of the tokens so far, so that generating a token computes only that token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from mytorch.nn.functional.types import DeviceLike

from .config import ModelConfig


class KVCache:
    """Keys and values of the previous tokens of each layer, allocated once and written in place.

    With a sliding window, token t is stored in slot t % window, where it replaces the token that left the
    window. Rows of a batch may begin with padding, which no token attends to.

    Args:
        config: configuration of the model.
        batch_size: number of sequences.
        dtype, device: dtype and device of the model's parameters.
        capacity: number of tokens; the context length of the model by default.
        padding: for each sequence, the number of its first tokens that are padding.

    Attributes:
        layers: per layer, keys and values (batch_size, heads, capacity, features of a head).
        length: number of tokens so far, padding included.

    A model calls `positions` once for new tokens, `attend` in each layer, and then increases `length`.
    """

    def __init__(
        self, config: ModelConfig, batch_size: int = 1, dtype=mytorch.float32, device: DeviceLike = None,
        capacity: int | None = None, padding: Sequence[int] | None = None,
    ):
        num_layers, heads, features = config.cache_sizes
        self.window = config.sliding_window
        capacity = min(capacity or config.context_length, self.window or config.context_length)
        shape = (batch_size, heads, capacity, features)
        self.layers = [
            tuple([mytorch.zeros(shape, dtype=dtype, device=device) for _ in range(2)])  # keys, values
            for _ in range(num_layers)
        ]
        self.capacity, self.length = capacity, 0
        self.padding = np.array(padding) if padding is not None and any(padding) else None
        self.plan: Any = None  # of `decoder`
        self._mask: tuple[tuple[int, int], Tensor] | None = None  # of the last (length, new tokens)

    def positions(self, new: int) -> slice | Tensor:
        """Returns the positions of new tokens, as an index of a table with a row per position: a slice, or
        (batch_size, new) int64 if rows begin with padding."""
        end = self.length + new
        if end > self.capacity and self.capacity != self.window:
            raise ValueError(f"{end} tokens exceed the {self.capacity} of the cache")
        if self.padding is None:
            return slice(self.length, end)
        positions = np.arange(self.length, end) - self.padding[:, None]
        return mytorch.tensor(np.maximum(positions, 0), device=self.layers[0][0].device)

    def attend(
        self, layer: int, qkv: Tensor, num_heads: int, angles: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Stores the keys and values of new tokens, and returns their attention to all tokens so far.

        Args:
            qkv: (B, T, (H + 2 heads) E), for each token its queries, keys and values.
            num_heads: H, a multiple of the heads of the keys and values.
            angles: cos and sin by which queries and keys are rotated: `RotaryEmbedding.angles`.

        Returns:
            (B, T, H E); zeros for padding.
        """
        keys, values = self.layers[layer]
        B, T = qkv.shape[:2]
        if self.padding is None and self.length + T <= self.capacity:
            cos, sin = angles or (None, None)
            return F.cached_self_attention(qkv, num_heads, keys, values, self.length, cos=cos, sin=sin)
        heads = num_heads, keys.shape[1], keys.shape[1]
        q, k, v = qkv.view(B, T, sum(heads), keys.shape[3]).transpose(1, 2).split(heads, 1)
        if angles is not None:
            q, k = F.rotary_embedding(q, *angles), F.rotary_embedding(k, *angles)
        return self._attend(layer, q, k, v).transpose(1, 2).reshape(B, T, -1)

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Returns the same as `attend` for heads, (B, heads, T, E), zeros for padding."""
        keys, values = self.layers[layer]
        past, new, fits = self.length, q.shape[2], self.length + q.shape[2] <= self.capacity
        if fits and self.padding is None:
            return F.cached_attention(q, k, v, keys, values, past, enable_gqa=True)
        mask = self._visible(new)
        if fits or new == 1:
            self._store(keys, values, k, v)
            end = min(past + new, self.capacity)
            k, v = keys[:, :, :end], values[:, :, :end]
        else:  # some of the old tokens are replaced, but the first of the new ones still attend to them
            held = min(past, self.capacity)
            all_k, all_v = mytorch.cat([keys[:, :, :held], k], 2), mytorch.cat([values[:, :, :held], v], 2)
            self._store(keys, values, k, v)
            k, v = all_k, all_v
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    def _store(self, keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> None:
        new = min(k.shape[2], self.capacity)
        end = self.length + k.shape[2]
        slots = mytorch.tensor(np.arange(end - new, end) % self.capacity, device=keys.device)
        keys[:, :, slots] = k[:, :, -new:]
        values[:, :, slots] = v[:, :, -new:]

    def _visible(self, new: int) -> Tensor:
        """Returns a bool mask (B or 1, 1, new, keys): which keys each new token attends to."""
        if self._mask is not None and self._mask[0] == (self.length, new):
            return self._mask[1]
        end, size = self.length + new, self.capacity
        tokens = np.arange(self.length, end)
        if end <= size:
            held = np.arange(end)
        elif new == 1:  # slot s holds the last token whose number is s modulo the capacity
            held = self.length - (self.length - np.arange(size)) % size
        else:
            last = self.length - 1
            held = last - (last - np.arange(min(self.length, size))) % size
            held = np.concatenate([held, tokens])
        seen = held <= tokens[:, None]
        if self.window is not None:
            seen &= held > tokens[:, None] - self.window
        seen = seen[None, None]
        if self.padding is not None:
            seen = seen & (held >= self.padding[:, None, None, None])
        mask = mytorch.tensor(seen, device=self.layers[0][0].device)
        self._mask = (self.length, new), mask
        return mask

    def reorder(self, rows: Tensor) -> None:
        """Replaces the sequences by those of other rows: sequence b continues what was row rows[b].

        Args:
            rows: (batch_size,) int64
        """
        for keys, values in self.layers:
            keys.copy_(keys[rows])
            values.copy_(values[rows])
        if self.padding is not None:
            self.padding, self._mask = self.padding[rows.tolist()], None
