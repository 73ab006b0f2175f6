"""kl_div, gaussian_nll_loss and poisson_nll_loss."""

from __future__ import annotations

import math
import warnings

from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor, raw_of
from ...core.upcast import rounds_once
from ...ops import where, xlogy
from ...ops.autocast import autocasts, in_float32
from ...ops.bounds import require_all
from .loss import (
    REDUCTIONS,
    at_least,
    check_broadcast,
    check_reduction,
    from_legacy,
    is_visible,
    legacy_reduction,
    reduced,
)


@autocasts(in_float32)
def kl_div(  # without `legacy_reduction`, since it warns of `reduction` alone
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Returns the Kullback-Leibler divergence, target (log(target) - input), reduced.

    Args:
        input: log-probabilities.
        target: probabilities; with `log_target` their logarithms.
        reduction: "batchmean" divides the sum by the size of the first dim, which is the mathematical
            definition; "mean" by the number of elements, with a warning; "sum"; "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: integer dtypes; shapes that cannot be broadcast.
    Source: Kullback & Leibler, "On Information and Sufficiency", 1951,
        https://doi.org/10.1214/aoms/1177729694

    >>> F.kl_div(mytorch.tensor([0.5, 0.5]).log(), mytorch.tensor([0.9, 0.1]), reduction="sum")
    tensor(0.36806)
    """
    legacy = from_legacy(size_average, reduce)
    if reduction == "mean" and legacy is None:
        warnings.warn(
            "kl_div(): reduction='mean' divides by the number of elements; the divergence of a batch is "
            "'batchmean', which divides by the size of the first dim",
            stacklevel=4,
        )
    reduction = legacy or reduction
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    check_broadcast("kl_div", input=input, target=target)
    for name, x in (("input", input), ("target", target)):
        if not is_floating_point(x.dtype):
            raise RuntimeError(f"kl_div(): integral inputs are not supported, the {name} is {x.dtype}")
    loss = target.exp() * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean":
        return reduced(loss, "sum") / (input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction)


@rounds_once
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Returns the negative log-likelihood of the normal distribution N(input, var), reduced.

        0.5 (log(max(var, eps)) + (input - target)^2 / max(var, eps)) + constant

    Args:
        var: of the input's shape, or without its last dim, or with one dim of size 1; or a number.
        full: add the constant, 0.5 log(2 pi).
        eps: lower bound of the variance, which does not affect the gradient.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: another shape of `var`; a negative one (unchecked on a GPU, which would have to
            synchronize); an unknown reduction.
    Source: Nix & Weigend, "Estimating the mean and variance of the target probability distribution", 1994,
        https://doi.org/10.1109/ICNN.1994.374138

    >>> F.gaussian_nll_loss(mytorch.zeros(2), mytorch.ones(2), mytorch.ones(2))
    tensor(0.50000)
    """
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    if not isinstance(var, Tensor):
        var = input.new_full(input.shape, var)
    if is_visible(var):
        text = f"{name}(): var has negative entries"
        require_all(~(raw_of(var) < 0), text, ValueError, found=lambda: var.min().item())
    if var.data.shape == input.data.shape[:-1] and input.ndim:
        var = var.unsqueeze(-1)
    elif not _fits(var.data.shape, input.data.shape):
        raise ValueError(
            f"{name}(): var is of incorrect size, {var.data.shape}, for an input of {input.data.shape}"
        )
    check_broadcast(name, input=input, target=target)
    var = at_least(var, eps)
    loss = 0.5 * (var.log() + (input - target).square() / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Returns whether the shapes are equal except for one dim that is 1 in the first."""
    return len(shape) == len(other) and sum(o for s, o in zip(other, shape, strict=True) if s != o) <= 1


@autocasts(in_float32)
@legacy_reduction(before="eps")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Returns the negative log-likelihood of a Poisson distribution, reduced.

        exp(input) - target input              with log_input
        input - target log(input + eps)        without

    Args:
        input: the expected count, or its logarithm.
        target: the count.
        full: add log(target!) where target > 1, by Stirling: t log(t) - t + 0.5 log(2 pi t).
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: an unknown reduction.
        RuntimeError: shapes that cannot be broadcast.

    >>> F.poisson_nll_loss(mytorch.tensor([0.0]), mytorch.tensor([2.0]))
    tensor(1.00000)
    """
    check_reduction("poisson_nll_loss", reduction)
    check_broadcast("poisson_nll_loss", input=input, target=target)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + where(target <= 1, 0, stirling)
    return reduced(loss, reduction)
