"""Distance layers."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from ..module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between two vectors along a dim: see `F.cosine_similarity`.

    >>> nn.CosineSimilarity()(mytorch.tensor([[1.0, 0.0]]), mytorch.tensor([[1.0, 1.0]]))
    tensor([0.70711])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of two vectors along the last dim: see `F.pairwise_distance`.

    >>> nn.PairwiseDistance()(mytorch.tensor([[0.0, 0.0]]), mytorch.tensor([[3.0, 4.0]]))
    tensor([5.00000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
