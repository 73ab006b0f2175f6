"""Losses of classifiers: the negative log-likelihood and the cross entropy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...autograd import is_grad_enabled
from ...backends.blas import row_sums, rows
from ...backends.dtypes import is_floating_point
from ...core.tensor import Tensor
from ...ops import where
from .composite import composite
from .loss import read_reduction, reduced
from .softmax import log_softmax, shifted


@composite
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative logarithm of the probability of each target class, - weight[t] * input[t].

    Args:
        input: log-probabilities, (N, C), (C,) or (N, C, d1, …).
        target: class numbers, int64 or uint8, (N,), () or (N, d1, …).
        weight: of each class, (C,).
        ignore_index: elements with this target don't count.
        reduction: "mean" divides by the weights of all targets that count (NaN if none does), "sum", "none".

    Raises:
        IndexError: a target that is no class (not looked for on a GPU, which would have to wait).
        ValueError, RuntimeError: shapes, dtypes or the reduction are wrong.
    """
    dim = class_dim(input)
    counts, target, scale = weigh(input, target, weight, ignore_index)
    picked = -input.gather(dim, target.unsqueeze(dim)).squeeze(dim)
    return reduced(where(counts, picked * scale, 0), reduction, scale.sum())


def class_dim(x: Any) -> int:
    return 0 if x.ndim == 1 else 1


def weigh(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Which targets count, the targets with class 0 for the others, and how much each weighs."""
    counts = target != ignore_index
    target = where(counts, target, 0)
    return counts, target, counts.to(input.dtype) if weight is None else where(counts, weight[target], 0)


@nll_loss.check
def _check_nll(input, target, weight, size_average, ignore_index, reduce, reduction):
    reduction = read_reduction("nll_loss", reduction, size_average, reduce)
    if not input.ndim:
        raise ValueError("nll_loss(): expected 1 or more dimensions (got 0)")
    check_classes("nll_loss", input.data.shape, input.dtype, target, weight, ignore_index)
    return input, target.long(), weight, None, ignore_index, None, reduction


def check_classes(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
) -> None:
    """Raise unless `target` holds class numbers that fit the weight and logits of this shape and dtype."""
    _require_float(name, dtype)
    single, expected = len(shape) == 1, (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    classes = shape[0 if single else 1]
    if target.dtype not in (np.int64, np.uint8):
        raise RuntimeError(f"{name}(): expected a target of dtype int64 or uint8, got {target.dtype}")
    if target.data.shape != expected and not (single and target.data.shape == (1,)):
        if not single and target.data.shape[:1] != shape[:1]:
            raise ValueError(
                f"{name}(): expected input batch_size ({shape[0]}) to match target batch_size, "
                f"got a target of shape {target.data.shape}"
            )
        raise RuntimeError(
            f"{name}(): size mismatch: got input {shape} and target {target.data.shape}, expected {expected}"
        )
    if weight is not None:
        _check_weight(name, weight, classes)
        if weight.dtype != dtype:
            raise RuntimeError(f"{name}(): expected a weight of dtype {dtype}, got {weight.dtype}")
        if weight.requires_grad:
            raise RuntimeError(f"{name}() is not differentiable with respect to weight, which requires grad")
    raw = target.data._array
    if isinstance(raw, np.ndarray):
        wrong = raw[((raw < 0) | (raw >= classes)) & (raw != ignore_index)]
        if wrong.size:
            raise IndexError(f"{name}(): target {wrong[0]} is out of bounds, there are {classes} classes")


def _check_weight(name, weight, classes):
    if weight.data.shape != (classes,):
        raise RuntimeError(
            f"{name}(): weight tensor should be defined either for all {classes} classes or no classes, "
            f"but got shape {weight.data.shape}"
        )


def _require_float(name, dtype):
    if not is_floating_point(dtype):
        raise NotImplementedError(
            f"{name}(): not implemented for dtype {dtype}, only for floating-point tensors"
        )


def _targets(x, target, weight, ignore_index):
    """For an input (rows, C): does a row count, where in it is the target, and how much does it weigh?"""
    target = np.reshape(target, -1)
    counts = target != ignore_index
    target = np.where(counts, target, 0)
    scale = counts.astype(x.dtype) if weight is None else np.where(counts, weight[target], 0)
    return counts, (np.arange(x.shape[0], like=x), target), scale


class RowWeights(NamedTuple):
    """How the loss of class numbers weighs each row of logits, as kernels want to have it.

    With the log-probabilities log_p of a row it is - pull * log_p[target] - sum_c spread[c] * log_p[c].

    Attributes:
        target: the class, -1 in a row that doesn't count.
        counts: whether it does.
        pull: of the target; 0 in a row that doesn't count.
        spread: of each class, by label smoothing; None without.
        norm: what "mean" divides the sum of all losses by.
    """

    target: Any
    counts: Any
    pull: Any
    spread: Any
    norm: Any


def row_weights(
    target: Any, weight: Any, ignore_index: int, smoothing: float, classes: int, dtype: np.dtype
) -> RowWeights:
    """The weights for targets of any shape, of which each becomes a row."""
    target = np.reshape(target, -1)
    counts = target != ignore_index
    target = np.where(counts, target, -1)
    if weight is None:
        scale = counts.astype(dtype)
    else:
        weight = weight.astype(dtype, copy=False)
        scale = np.where(counts, weight[target], np.zeros_like(weight, shape=()))
    norm = np.sum(scale)
    if not smoothing:
        return RowWeights(target, counts, scale, None, norm)
    each = smoothing / max(classes, 1)
    spread = np.full_like(target, each, dtype, shape=classes) if weight is None else each * weight
    return RowWeights(target, counts, (1 - smoothing) * scale, spread, norm)


def class_last(x):
    return x[None] if x.ndim == 1 else x if x.ndim == 2 else np.moveaxis(x, 1, -1)


def class_back(d, shape):
    """The reverse of `class_last` and of making rows."""
    if len(shape) < 3:
        return np.reshape(d, shape)
    return np.moveaxis(np.reshape(d, (shape[0], *shape[2:], shape[1])), -1, 1)


@nll_loss.manual
def _nll_loss(x, target, weight, size_average, ignore_index, reduce, reduction):
    shape, kind = x.shape, target.shape
    x = rows(class_last(x))
    counts, at, scale = _targets(x, target, weight, ignore_index)
    loss = np.where(counts, -x[at] * scale, 0)
    norm = np.sum(scale) if reduction == "mean" else 1
    slope = -scale / norm
    size, dtype = x.shape, x.dtype

    def grad(g):
        d = np.zeros(size, dtype, like=g)
        d[at] = np.where(counts, slope * np.reshape(g, -1), 0)
        return class_back(d, shape)

    return reduced(np.reshape(loss, kind), reduction, norm), grad


@composite
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """How badly softmax(input) predicts the target: - sum_c weight[c] p[c] log(softmax(input)[c]).

    With class numbers p is 1 for the target and 0 for the others; smoothed, p is (1 - e) p + e / C.

    Args:
        input: logits, (N, C), (C,) or (N, C, d1, …).
        target: class numbers, int64 or uint8, (N,), () or (N, d1, …); or probabilities in the input's shape.
        weight: of each class, (C,).
        ignore_index: elements with this target don't count (class numbers only).
        reduction: "mean" divides by the weights of all targets that count (NaN if none does), for
            probabilities by the number of elements; "sum", "none".
        label_smoothing: e, from 0 to 1.

    Raises:
        IndexError: a target that is no class (not looked for on a GPU, which would have to wait).
        ValueError, RuntimeError: shapes, dtypes, the reduction or the smoothing are wrong.
    Source: label smoothing: Szegedy et al., 2015, https://arxiv.org/abs/1512.00567, section 7.
    """
    dim = class_dim(input)
    classes = input.shape[dim]
    log_p = log_softmax(input, dim, auto=True)
    by_class = 1 if weight is None else weight.reshape(-1, *[1] * (input.ndim - dim - 1))
    if is_floating_point(target.dtype):
        smoothed = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(log_p * smoothed * by_class).sum(dim)
        return reduced(loss, reduction, loss.numel())
    counts, target, scale = weigh(input, target, weight, ignore_index)
    loss = -log_p.gather(dim, target.unsqueeze(dim)).squeeze(dim) * scale
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing / classes * (log_p * by_class).sum(dim)
    return reduced(where(counts, loss, 0), reduction, scale.sum())


@cross_entropy.check
def _check_cross_entropy(
    input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
):
    reduction = read_reduction("cross_entropy", reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(
            f"cross_entropy(): label_smoothing must be between 0.0 and 1.0, got {label_smoothing}"
        )
    if target.data.shape == input.data.shape:  # PyTorch's rule: probabilities are told by their shape
        check_probabilities("cross_entropy", input.data.shape, input.dtype, target, weight, ignore_index)
    else:
        check_classes("cross_entropy", input.data.shape, input.dtype, target, weight, ignore_index)
        target = target.long()
    return input, target, weight, None, ignore_index, None, reduction, label_smoothing


def check_probabilities(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
) -> None:
    """Raise unless `target`, of the logits' shape, holds probabilities."""
    _require_float(name, dtype)
    if not is_floating_point(target.dtype):
        raise RuntimeError(
            f"{name}(): expected floating point type for target probabilities, got {target.dtype}"
        )
    if ignore_index >= 0:
        raise RuntimeError(
            f"{name}(): ignore_index={ignore_index} is not supported for floating point target"
        )
    if weight is not None:
        _check_weight(name, weight, shape[min(len(shape) - 1, 1)] if shape else 0)


@cross_entropy.manual
def _cross_entropy(x, target, weight, size_average, ignore_index, reduce, reduction, smoothing):
    """The logits less their maximum, their exponentials and the gradient follow each other in one buffer.

    With p = softmax(x) the gradient of -log(p[t]) is p - onehot(t); smoothing adds a mean over all t.
    """
    if is_floating_point(target.dtype):
        return _from_probabilities(x, target, weight, reduction, smoothing)
    shape, kind = x.shape, target.shape
    z = rows(shifted(class_last(x), -1))
    counts, at, scale = _targets(z, target, weight, ignore_index)
    norm = np.sum(scale) if reduction == "mean" else 1
    pull = push = (1 - smoothing) * scale
    loss = -pull * z[at]
    if smoothing:
        spread = smoothing / z.shape[1] * (np.ones_like(z, shape=z.shape[1:]) if weight is None else weight)
        push = pull + np.sum(spread)
        loss -= z @ spread
    np.exp(z, out=z)
    total = row_sums(z)[:, 0]
    loss = np.where(counts, loss + push * np.log(total), 0)
    if is_grad_enabled():
        z *= (np.where(counts, push / norm, 0) / total)[:, None]
        z[at] -= np.where(counts, pull / norm, 0)
        if smoothing:
            z -= np.where(counts, 1 / norm, 0)[:, None].astype(z.dtype) * spread

    def grad(g):
        if isinstance(g, np.ndarray) and g.ndim == 0 and g == 1:  # as usual: no need to pass over the buffer
            return class_back(z, shape)
        return class_back(z * np.where(counts, np.reshape(g, -1), 0)[:, None], shape)

    return reduced(np.reshape(loss, kind), reduction, norm), grad


def _from_probabilities(x, target, weight, reduction, smoothing):
    dim, shape = class_dim(x), x.shape
    classes = shape[dim]
    by_class = 1 if weight is None else np.reshape(weight, (-1, *[1] * (x.ndim - dim - 1)))
    log_p = shifted(x, dim)
    log_p -= np.log(np.sum(np.exp(log_p), axis=dim, keepdims=True))
    smoothed = target * (1 - smoothing) + smoothing / classes
    p = smoothed * by_class
    loss = -np.sum(log_p * p, axis=dim)
    norm = loss.size if reduction == "mean" else 1

    def along(g):
        """The gradient of the loss of each element, with the dim of the classes."""
        return g / norm if reduction != "none" else np.expand_dims(g, dim)

    def grad_weight(g):
        d = -along(g) * log_p * smoothed
        return np.sum(d, axis=tuple(i for i in range(d.ndim) if i != dim))

    return reduced(loss, reduction, norm), (
        lambda g: along(g) * (np.exp(log_p) * np.sum(p, axis=dim, keepdims=True) - p),
        lambda g: along(g) * ((smoothing - 1) * by_class * log_p),
        None if weight is None else grad_weight,
    )
