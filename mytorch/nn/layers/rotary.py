"""Rotary position embedding as a layer, with the scalings that extend the context of a trained model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...backends.device import device_of_new
from ...backends.door import in_force
from ...core.tensor import Tensor
from ...ops import tensor
from .. import functional as F
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module

SCALINGS = ("default", "linear", "ntk", "yarn", "llama3")


class RotaryEmbedding(Module):
    """Rotates pairs of features of queries and keys by angles that depend on the position.

        angle of pair i at position t:  t base^(-2 i / head_dim)

    Args:
        head_dim: features of a head, an even number.
        base: the longest wavelength is near 2 pi times this number of positions.
        scaling: how the angles are changed for contexts longer than in training, with the keys of Hugging
            Face's `rope_parameters`: "rope_type", one of "default", "linear", "ntk", "yarn", "llama3";
            "factor", how many times longer the context is; for the last two also
            "original_max_position_embeddings" and options of their own.
        interleaved: pairs are the features 2 i and 2 i + 1 instead of i and i + head_dim / 2.

    Raises:
        ValueError: an odd number of features, an unknown scaling, or an option of it is missing.
    Source: Su et al., 2021, https://arxiv.org/abs/2104.09864; linear: Chen et al., 2023,
        https://arxiv.org/abs/2306.15595; ntk and yarn: Peng et al., 2023, https://arxiv.org/abs/2309.00071;
        llama3: Dubey et al., 2024, https://arxiv.org/abs/2407.21783.

    >>> q = mytorch.randn(1, 2, 5, 8)
    >>> nn.RotaryEmbedding(8)(q).shape
    Size([1, 2, 5, 8])
    """

    def __init__(
        self, head_dim: int, base: float = 10000.0, scaling: Mapping[str, object] | None = None,
        interleaved: bool = False,
    ):
        super().__init__()
        if head_dim < 2 or head_dim % 2:
            raise ValueError(f"head_dim must be even and positive, got {head_dim}")
        self.head_dim, self.base, self.interleaved = head_dim, base, interleaved
        self.scaling = dict(scaling or {"rope_type": "default"})
        try:
            self.frequencies, self.factor = rotary_frequencies(head_dim, base, self.scaling)
        except KeyError as error:
            raise ValueError(f"rotary scaling {self.scaling} lacks {error}") from None
        self._tables: dict[object, tuple[Tensor, Tensor]] = {}  # of a device and dtype

    def forward(self, x: Tensor, positions: slice | Tensor | None = None) -> Tensor:
        """Returns queries or keys (B, H, T, head_dim) rotated by the angles of their positions.

        Args:
            positions: a slice, or (T,) or (B, T) int64; 0 to T - 1 by default.
        """
        positions = slice(0, x.shape[-2]) if positions is None else positions
        return F.rotary_embedding(x, *self.angles(positions, x.device, x.dtype), self.interleaved)

    def angles(
        self, positions: slice | Tensor, device: DeviceLike = None, dtype: DTypeLike = None
    ) -> tuple[Tensor, Tensor]:
        """Returns cos and sin of the angles of positions, (1 or B, T, head_dim / 2).

        Args:
            positions: see `forward`.
            device, dtype: of the queries and keys; the angles are float64 for float64, else float32.
        """
        device, dtype = device_of_new(device), np.float64 if dtype == np.float64 else np.float32
        is_slice = isinstance(positions, slice)
        length = positions.stop if is_slice else int(positions.max()) + 1
        cos, sin = self._tables.get((device.full_name, dtype), (None, None))
        if cos is None or len(cos) < length:
            rows = max(1 << (length - 1).bit_length(), 64)  # at most as many again as are needed
            angles = np.arange(rows)[:, None] * self.frequencies
            cos, sin = (
                tensor((f(angles) * self.factor).astype(dtype), device=device) for f in (np.cos, np.sin)
            )
            if in_force().lasts:
                self._tables[device.full_name, dtype] = cos, sin
        return cos[positions].unsqueeze(-3), sin[positions].unsqueeze(-3)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, base={self.base}, scaling={self.scaling}, interleaved={self.interleaved}"


def rotary_frequencies(head_dim: int, base: float, scaling: Mapping[str, object]) -> tuple[np.ndarray, float]:
    """Returns the angles per position, (head_dim / 2,) float64, and the factor of their cos and sin."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in SCALINGS:
        raise ValueError(f"rotary scaling {kind!r} is unknown; the kinds are {', '.join(SCALINGS)}")
    if kind == "ntk":  # as much as the longest wavelength must grow
        base = base * scaling["factor"] ** (head_dim / (head_dim - 2))
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    if kind == "linear":
        return frequencies / scaling["factor"], 1.0
    if kind == "llama3":
        return _llama3(frequencies, scaling), 1.0
    if kind == "yarn":
        return _yarn(frequencies, head_dim, base, scaling)
    return frequencies, 1.0


def _llama3(frequencies: np.ndarray, scaling: Mapping[str, object]) -> np.ndarray:
    """Divides long wavelengths by the factor and leaves short ones, with a transition between both."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * np.pi)  # in the old context
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / scaling["factor"])


def _yarn(
    frequencies: np.ndarray, head_dim: int, base: float, scaling: Mapping[str, object]
) -> tuple[np.ndarray, float]:
    """Divides features of few turns by the factor and leaves those of many, in a linear transition."""
    factor, length = scaling["factor"], scaling["original_max_position_embeddings"]

    def pair(turns):  # the pair of features that makes this many turns in the old context
        return head_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    last += 0.001 if first == last else 0
    divided = np.clip((np.arange(head_dim // 2) - first) / (last - first), 0, 1)
    attention = scaling.get("attention_factor")
    if attention is None:
        scales = scaling.get("mscale"), scaling.get("mscale_all_dim")
        both = all(scales)
        attention = _mscale(factor, scales[0]) / _mscale(factor, scales[1]) if both else _mscale(factor)
    return frequencies * (1 - divided + divided / factor), attention


def _mscale(factor: float, mscale: float = 1.0) -> float:
    """Returns YaRN's factor for cos and sin: attention over more tokens has a lower temperature."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0
