"""Loss layers: each calls the function of its name in `nn.functional`, which has the formula.

Those with a margin are in `margin_loss`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.linear_cross_entropy import LinearCrossEntropyOptions
from ..functional.loss import REDUCTIONS, check_reduction, legacy_reduction
from ..functional.types import DeviceLike, DTypeLike
from ..module import Module
from .linear import Linear


class _Loss(Module):
    """Base of the losses.

    Args:
        reduction: "mean", "sum" or "none"; PyTorch used to call it `size_average` and `reduce`.
    """

    reductions = REDUCTIONS

    @legacy_reduction
    def __init__(self, reduction: str = "mean"):
        super().__init__()
        name = type(self).__name__
        check_reduction(name, reduction, self.reductions)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """Base of the losses with a weight: a buffer, or None."""

    @legacy_reduction
    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)


# Regression.


class MSELoss(_Loss):
    """(input - target)^2: see `F.mse_loss`.

    >>> nn.MSELoss()(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(2.00000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|input - target|: see `F.l1_loss`.

    >>> nn.L1Loss()(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(1.00000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """|input - target|, quadratic near 0: see `F.smooth_l1_loss`.

    Args:
        beta: the error up to which it is quadratic.

    >>> nn.SmoothL1Loss()(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(0.75000)
    """

    @legacy_reduction
    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """The squared error where it is small, else the absolute error: see `F.huber_loss`.

    Args:
        delta: the error up to which it is quadratic.

    Raises:
        TypeError: delta is no number.

    >>> nn.HuberLoss()(mytorch.tensor([1.0, 2.0]), mytorch.tensor([1.0, 4.0]))
    tensor(0.75000)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got {type(delta).__name__}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# Classes.


class _ClassLoss(_WeightedLoss):
    """Base of the losses with a weight for each class.

    Args:
        weight: (C,)
        ignore_index: targets that are ignored.
    """

    @legacy_reduction(before="ignore_index")
    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index


class NLLLoss(_ClassLoss):
    """- weight[t] * input[t], for log-probabilities: see `F.nll_loss`.

    >>> nn.NLLLoss()(mytorch.tensor([[-0.1, -2.4]]), mytorch.tensor([0]))
    tensor(0.10000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
        )


class CrossEntropyLoss(_ClassLoss):
    """-log(softmax(input)[t]), for logits: see `F.cross_entropy`.

    Args:
        label_smoothing: the share of a target's probability that all classes divide.

    >>> nn.CrossEntropyLoss()(mytorch.tensor([[2.0, 0.0]]), mytorch.tensor([0]))
    tensor(0.12693)
    """

    @legacy_reduction(before="ignore_index")
    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class CTCLoss(_Loss):
    """- log of the probability of labels whose positions are unknown: see `F.ctc_loss`.

    Args:
        blank: the class of a step without a label.
        zero_infinity: 0 for an infinite loss.

    >>> log_probs = mytorch.zeros(4, 1, 3).log_softmax(2)
    >>> nn.CTCLoss()(log_probs, mytorch.tensor([[1, 2]]), mytorch.tensor([4]), mytorch.tensor([2]))
    tensor(0.84320)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear layer's output, in chunks of rows: see `F.linear_cross_entropy`.

    Args:
        in_features: size of the input.
        num_classes: C.
        out_features: (d1, …), for logits (N, C, d1, …).
        bias: whether the linear layer has one.
        device, dtype: of the linear layer's parameters.
        weight: of each class, (C,).
        ignore_index, label_smoothing, options: see the function.

    Raises:
        RuntimeError: the weight's shape is wrong, or the smoothing isn't from 0 to 1.

    >>> nn.LinearCrossEntropyLoss(2, 3)(mytorch.ones(4, 2), mytorch.tensor([0, 1, 2, 0])).shape
    Size([])
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: DeviceLike = None, dtype: DTypeLike = None, reduction: str = "mean",
        weight: Tensor | None = None, ignore_index: int | None = None, label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ):
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        rows = math.prod(self.out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias, device, dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, self.linear.in_features), target,
            None if bias is None else bias.reshape(*shape), self.weight, self.reduction, self.ignore_index,
            self.label_smoothing, self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class BCELoss(_WeightedLoss):
    """The binary cross entropy of probabilities: see `F.binary_cross_entropy`.

    >>> nn.BCELoss()(mytorch.tensor([0.9]), mytorch.tensor([1.0]))
    tensor(0.10536)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """The binary cross entropy of logits: see `F.binary_cross_entropy_with_logits`.

    Args:
        weight: of each element.
        pos_weight: of the positive targets.

    >>> nn.BCEWithLogitsLoss()(mytorch.tensor([2.0]), mytorch.tensor([1.0]))
    tensor(0.12693)
    """

    @legacy_reduction
    def __init__(
        self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
    ):
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


# Likelihoods.


class KLDivLoss(_Loss):
    """target (log(target) - input), for log-probabilities: see `F.kl_div`.

    Args:
        reduction: "batchmean", too.
        log_target: the targets are logarithms.

    >>> nn.KLDivLoss(reduction="sum")(mytorch.tensor([0.5, 0.5]).log(), mytorch.tensor([0.9, 0.1]))
    tensor(0.36806)
    """

    reductions = (*REDUCTIONS, "batchmean")

    @legacy_reduction
    def __init__(self, reduction: str = "mean", log_target: bool = False):
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(_Loss):
    """-log of a normal density: see `F.gaussian_nll_loss`.

    Args:
        full: add the constant term.
        eps: lower bound of the variance.

    >>> nn.GaussianNLLLoss()(mytorch.zeros(2), mytorch.ones(2), mytorch.ones(2))
    tensor(0.50000)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """-log of a Poisson probability: see `F.poisson_nll_loss`.

    Args:
        log_input: the input is the logarithm of the expected count.
        full: add an approximation of the term of the target alone.
        eps: added before the logarithm without `log_input`.

    >>> nn.PoissonNLLLoss()(mytorch.tensor([0.0]), mytorch.tensor([2.0]))
    tensor(1.00000)
    """

    @legacy_reduction(before="eps")
    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ):
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction
        )
