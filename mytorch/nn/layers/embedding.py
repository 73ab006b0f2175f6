"""Embedding and EmbeddingBag: a table of vectors, looked up by index."""

from __future__ import annotations

from ...core.tensor import Tensor
from ...ops import empty
from .. import functional as F
from .. import init
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from ..parameter import Parameter


class Embedding(Module):
    """y[...] = weight[input[...]], from (...) integers to (..., embedding_dim).

    Args:
        num_embeddings, embedding_dim: rows and columns of the table.
        padding_idx: a row of zeros without gradient.
        max_norm, norm_type, scale_grad_by_freq, sparse: see `F.embedding`.

    Attributes:
        weight: (num_embeddings, embedding_dim), from the normal distribution of mean 0 and variance 1.

    >>> nn.Embedding(10, 4)(mytorch.tensor([[1, 2, 3]])).shape
    Size([1, 3, 4])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"padding_idx {padding_idx} must be within num_embeddings, {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self.max_norm, self.norm_type = padding_idx, max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            _weight = empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    f"weight of shape {tuple(_weight.shape)} isn't ({num_embeddings}, {embedding_dim})"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding on the memory of a matrix; not trained, unless `freeze` is False."""
        if embeddings.ndim != 2:
            raise AssertionError(
                f"embeddings is expected to be 2-dimensional, got shape {tuple(embeddings.shape)}"
            )
        return cls(
            *embeddings.shape,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            embeddings,
            freeze,
        )

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text + (", sparse=True" if self.sparse else "")


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table: see `F.embedding_bag`.

    Args:
        num_embeddings, embedding_dim: rows and columns of the table.
        max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset: see the function.
        padding_idx: a row of zeros that counts in no bag.

    Attributes:
        weight: (num_embeddings, embedding_dim), from the normal distribution of mean 0 and variance 1.

    >>> nn.EmbeddingBag(10, 4)(mytorch.tensor([[1, 2, 3]])).shape
    Size([1, 4])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
        _weight: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
        device: DeviceLike = None, dtype: DTypeLike = None,
    ):
        super().__init__()
        shape = (num_embeddings, embedding_dim)
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"padding_idx {padding_idx} must be within num_embeddings, {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = *shape, padding_idx
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset
        if _weight is not None and tuple(_weight.shape) != shape:
            raise AssertionError(f"weight of shape {tuple(_weight.shape)} isn't {shape}")
        self.weight = Parameter(empty(shape, device=device, dtype=dtype) if _weight is None else _weight)
        if _weight is None:
            self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
        include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An EmbeddingBag on the memory of a matrix; not trained, unless `freeze` is False."""
        if embeddings.ndim != 2:
            raise AssertionError(
                f"embeddings is expected to be 2-dimensional, got shape {tuple(embeddings.shape)}"
            )
        made = cls(
            *embeddings.shape, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
            include_last_offset, padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made

    reset_parameters = Embedding.reset_parameters

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        for name, value in usual.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
