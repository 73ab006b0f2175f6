"""Linear layers and embeddings whose weights stay quantized in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.device import on
from ...core.tensor import Tensor, from_raw, raw_of
from ...ops import cat, empty, zeros
from .. import functional as F
from ..functional.linear import ACTIVATIONS
from ..functional.quantization import BLOCK, Quantized, dequantized, quantized, require_format
from ..functional.types import DeviceLike
from ..module import Module
from ..parameter import Parameter
from .embedding import Embedding
from .linear import Linear


class _Quantized(Module):
    """A module with a quantized weight (rows, columns), which is zero until it is loaded.

    Attributes:
        codes, scales, offsets: buffers; see `functional.quantization`.
    """

    def __init__(self, rows: int, columns: int, format: str, device: DeviceLike):
        super().__init__()
        require_format(format, type(self).__name__)
        if columns < 1 or columns % BLOCK:
            raise ValueError(f"{type(self).__name__}: rows of {columns} numbers aren't blocks of {BLOCK}")
        self.format = format
        width, kind = (columns, "int8") if format == "q8_0" else (columns // 2, "uint8")
        shape = (rows, columns // BLOCK)
        self.register_buffer("codes", zeros((rows, width), dtype=kind, device=device))
        self.register_buffer("scales", zeros(shape, dtype="uint16", device=device))
        offsets = zeros(shape, dtype="uint16", device=device) if format == "q4_1" else None
        self.register_buffer("offsets", offsets)

    def _quantize(self, weight: Tensor, tied: _Quantized | None) -> None:
        """Sets the buffers to those of a weight (rows, columns), or of a layer that has it already."""
        if tied is not None:
            self._buffers.update(zip(Quantized._fields, tied._weight(), strict=True))
            return
        with on(weight.device):
            self.set_weight(quantized(raw_of(weight.detach().float()), self.format))

    def set_weight(self, weight: Quantized) -> None:
        """Sets the buffers to these arrays, of the format and shape of the module.

        Raises:
            ValueError: a shape or dtype differs.
        """
        for name, raw in weight._asdict().items():
            before = self._buffers[name]
            kinds = [None if a is None else (tuple(a.shape), np.dtype(a.dtype)) for a in (before, raw)]
            if kinds[0] != kinds[1]:
                raise ValueError(f"{type(self).__name__}: {name} are {kinds[1]}, expected {kinds[0]}")
            self._buffers[name] = None if raw is None else from_raw(raw)

    def dequantize(self) -> Tensor:
        """Returns the weight (rows, columns), float32."""
        with on(self.codes.device):
            return from_raw(dequantized(*[None if t is None else raw_of(t) for t in self._weight()]))

    def _weight(self) -> list[Tensor | None]:
        return [self._buffers[name] for name in Quantized._fields]


class QuantizedLinear(_Quantized):
    """y = f(x W^T + b), from (..., in_features) to (..., out_features); W is quantized, see
    `F.quantized_linear`.

    The weight is zero until it is loaded; `from_linear` makes a layer of a trained one. It has no gradient;
    input and bias have. Casts, as `half()`, leave it as it is; `to(device)` moves it.

    Args:
        in_features: a multiple of 32.
        bias: whether to add b.
        format: "q8_0", "q4_0" or "q4_1": 8.5, 4.5 or 5 bits a weight.
        activation: f, as in `nn.LinearActivation`, or None.

    Raises:
        ValueError: `in_features`, the format or the activation isn't one of these.

    >>> layer = nn.QuantizedLinear.from_linear(nn.Linear(64, 3), "q8_0")
    >>> layer(mytorch.ones(4, 64)).shape
    Size([4, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, format: str = "q8_0",
        activation: str | None = None, device: DeviceLike = None,
    ):
        super().__init__(out_features, in_features, format, device)
        if activation is not None and activation not in ACTIVATIONS:
            raise ValueError(f"activation is None or one of {', '.join(ACTIVATIONS)}; got {activation!r}")
        self.in_features, self.out_features, self.activation = in_features, out_features, activation
        self.register_parameter("bias", Parameter(zeros(out_features, device=device)) if bias else None)

    @classmethod
    def from_linear(
        cls, linear: Linear, format: str = "q8_0", tied: _Quantized | None = None
    ) -> QuantizedLinear:
        """Returns the layer with the quantized weight, and the very bias, of an `nn.Linear` or
        `nn.LinearActivation`.

        Args:
            tied: a quantized layer of the same weight, which the layers then share.
        """
        activation = getattr(linear, "activation", None)
        made = cls(linear.in_features, linear.out_features, False, format, activation, linear.weight.device)
        made._quantize(linear.weight, tied)
        made.bias = linear.bias
        return made.train(linear.training)

    @classmethod
    def joined(cls, layers: Sequence[Module]) -> QuantizedLinear | None:
        """Returns a layer whose result is those of several layers of one input, side by side.

        One call has less overhead than several. None if not all are quantized, in one format, all with a bias
        or all without.
        """
        first = layers[0]
        if any(type(layer) is not cls for layer in layers):
            return None
        kinds = {(y.in_features, y.format, y.bias is None, y.activation) for y in layers}
        if len(kinds) > 1 or first.activation is not None:
            return None
        rows = sum(layer.out_features for layer in layers)
        made = cls(first.in_features, rows, False, first.format, None, first.codes.device)
        for name, tensor in first._buffers.items():
            made._buffers[name] = None if tensor is None else cat([layer._buffers[name] for layer in layers])
        if first.bias is not None:
            made.bias = Parameter(cat([layer.bias.detach() for layer in layers]))
        return made.train(first.training)

    def forward(self, input: Tensor) -> Tensor:
        weight = self._buffers
        y = F.quantized_linear(
            input, weight["codes"], weight["scales"], weight["offsets"], self._parameters["bias"]
        )
        return y if self.activation is None else ACTIVATIONS[self.activation](y)

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        text += f", bias={self.bias is not None}, format={self.format!r}"
        return text if self.activation is None else f"{text}, activation={self.activation!r}"


class QuantizedEmbedding(_Quantized):
    """y[...] = weight[input[...]], from (...) integers to (..., embedding_dim): only the rows that are looked
    up are dequantized. It is for the embedding whose weight is a quantized output layer's, too.

    Args:
        num_embeddings, embedding_dim: rows and columns of the table; `embedding_dim` is a multiple of 32.
        format: "q8_0", "q4_0" or "q4_1".

    Raises:
        ValueError: `embedding_dim` or the format isn't one of these.

    >>> table = nn.QuantizedEmbedding.from_embedding(nn.Embedding(10, 32), "q8_0")
    >>> table(mytorch.tensor([[1, 2, 3]])).shape
    Size([1, 3, 32])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, format: str = "q8_0", device: DeviceLike = None
    ):
        super().__init__(num_embeddings, embedding_dim, format, device)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        # Casts of the model change its dtype, which is the result's.
        self.register_buffer("like", empty(0, device=device), persistent=False)

    @classmethod
    def from_embedding(
        cls, embedding: Embedding, format: str = "q8_0", tied: _Quantized | None = None
    ) -> QuantizedEmbedding:
        """Returns the layer with the quantized weight of an `nn.Embedding`; `tied`: see `QuantizedLinear`."""
        weight = embedding.weight
        made = cls(embedding.num_embeddings, embedding.embedding_dim, format, weight.device).to(weight.dtype)
        made._quantize(weight, tied)
        return made.train(embedding.training)

    def forward(self, input: Tensor) -> Tensor:
        rows = [None if t is None else raw_of(F.embedding(input, t)) for t in self._weight()]
        with on(input.device):
            return from_raw(dequantized(*rows)).to(self.like.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, format={self.format!r}"
