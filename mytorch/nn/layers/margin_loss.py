"""Loss layers with a margin, and those of pairs and triplets: each calls its function in `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.loss import legacy_reduction
from .distance import PairwiseDistance
from .loss import _Loss, _WeightedLoss


class _MarginLoss(_Loss):
    """Base of the losses whose first argument is a margin."""

    @legacy_reduction
    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.margin = margin


class MarginRankingLoss(_MarginLoss):
    """max(0, -target (input1 - input2) + margin): see `F.margin_ranking_loss`.

    >>> nn.MarginRankingLoss()(mytorch.tensor([1.0]), mytorch.tensor([3.0]), mytorch.tensor([1]))
    tensor(2.00000)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos, or max(0, cos - margin): see `F.cosine_embedding_loss`.

    >>> nn.CosineEmbeddingLoss()(mytorch.ones(1, 2), mytorch.ones(1, 2), mytorch.tensor([-1]))
    tensor(1.00000)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """The distance, or max(0, margin - distance): see `F.hinge_embedding_loss`.

    >>> nn.HingeEmbeddingLoss()(mytorch.tensor([0.5]), mytorch.tensor([-1]))
    tensor(0.50000)
    """

    @legacy_reduction
    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        super().__init__(margin, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target input)): see `F.soft_margin_loss`.

    >>> nn.SoftMarginLoss()(mytorch.tensor([0.0]), mytorch.tensor([1.0]))
    tensor(0.69315)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """max(0, margin - input[t] + input[j])^p for all other classes j: see `F.multi_margin_loss`.

    Raises:
        ValueError: p is not 1 or 2; the weight is not 1-D.

    >>> nn.MultiMarginLoss()(mytorch.tensor([[1.0, 0.5]]), mytorch.tensor([0]))
    tensor(0.25000)
    """

    @legacy_reduction
    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
    ):
        super().__init__(weight, reduction=reduction)
        if p not in (1, 2):
            raise ValueError(f"only p == 1 and p == 2 supported, got {p}")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"expected weight to be None or 1D, got shape {tuple(weight.shape)}")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (input[t] - input[j])) for all targets t and others j: see `F.multilabel_margin_loss`.

    >>> nn.MultiLabelMarginLoss()(mytorch.tensor([[0.1, 0.9]]), mytorch.tensor([[1, -1]]))
    tensor(0.10000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The binary cross entropy of each class: see `F.multilabel_soft_margin_loss`.

    >>> nn.MultiLabelSoftMarginLoss()(mytorch.zeros(1, 2), mytorch.ones(1, 2))
    tensor(0.69315)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


def _positive_margin(name: str, margin: float) -> float:
    if margin <= 0:
        raise ValueError(f"{name}: expected margin to be greater than 0, got {margin}")
    return margin


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin): see `F.triplet_margin_loss`.

    Raises:
        ValueError: the margin is not positive.

    >>> nn.TripletMarginLoss()(mytorch.zeros(1, 2), mytorch.zeros(1, 2), mytorch.ones(1, 2) * 0.3)
    tensor(0.57574)
    """

    @legacy_reduction
    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        reduction: str = "mean",
    ):
        super().__init__(reduction=reduction)
        self.margin = _positive_margin("TripletMarginLoss", margin)
        self.p, self.eps, self.swap = p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """The same with a custom distance: see `F.triplet_margin_with_distance_loss`.

    Raises:
        ValueError: the margin is not positive.

    >>> nn.TripletMarginWithDistanceLoss()(mytorch.zeros(1, 2), mytorch.zeros(1, 2), mytorch.ones(1, 2) * 0.3)
    tensor(0.57574)
    """

    def __init__(
        self, *, distance_function: Callable | None = None, margin: float = 1.0, swap: bool = False,
        reduction: str = "mean",
    ):
        super().__init__(reduction=reduction)
        self.margin, self.swap = _positive_margin("TripletMarginWithDistanceLoss", margin), swap
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin,
            swap=self.swap, reduction=self.reduction,
        )
