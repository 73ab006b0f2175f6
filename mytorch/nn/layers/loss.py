"""Loss layers: each calls the function of its name in `nn.functional`."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional as F
from ..functional.loss import read_reduction
from ..module import Module


class _Loss(Module):
    """Base of the losses.

    Args:
        reduction: "mean", "sum" or "none"; PyTorch used to call it `size_average` and `reduce`.
        fused: use the fused kernel.
    """

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", fused: bool | None = None
    ):
        super().__init__()
        self.reduction, self.fused = (
            read_reduction(type(self).__name__, reduction, size_average, reduce),
            fused,
        )


class MSELoss(_Loss):
    """(input - target)^2: see `F.mse_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction, fused=self.fused)


class _ClassLoss(_Loss):
    """Base of the losses with a weight for each class.

    Args:
        weight: (C,)
        ignore_index: targets that don't count.
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
        reduce: Any = None, reduction: str = "mean", fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(size_average, reduce, reduction, fused)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index


class NLLLoss(_ClassLoss):
    """- weight[t] * input[t], for log-probabilities: see `F.nll_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            fused=self.fused,
        )


class CrossEntropyLoss(_ClassLoss):
    """-log(softmax(input)[t]), for logits: see `F.cross_entropy`.

    Args:
        label_smoothing: how much of a target's probability is spread over all classes.
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
        reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(weight, size_average, ignore_index, reduce, reduction, fused)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing, fused=self.fused,
        )  # fmt: skip
