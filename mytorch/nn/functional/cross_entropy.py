"""Classification losses: nll_loss and cross_entropy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...autograd import is_grad_enabled
from ...backends.blas import row_sums, rows
from ...backends.device import RawArray, is_on_host
from ...backends.dtypes import DTypeLike, as_dtype, is_floating_point, is_half
from ...core.tensor import Tensor
from ...core.upcast import FLOAT32
from ...ops import where
from ...ops.bounds import check_range
from .composite import composite, require_float
from .loss import check_reduction, legacy_reduction, reduced
from .softmax import log_softmax, shifted


@legacy_reduction(before="ignore_index")
@composite
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Returns the negative log-likelihood of the target classes, - weight[t] * input[t].

    Args:
        input: log-probabilities, (N, C), (C,) or (N, C, d1, …).
        target: class indices, int64 or uint8, (N,), () or (N, d1, …).
        weight: of each class, (C,).
        ignore_index: elements with this target are ignored.
        reduction: "mean" divides by the weights of all targets not ignored (NaN without any), "sum", "none".

    Raises:
        IndexError: a target out of range (on a GPU: after the next wait).
        ValueError, RuntimeError: invalid shapes, dtypes or reduction.

    >>> F.nll_loss(mytorch.tensor([[-0.1, -2.4]]), mytorch.tensor([0]))
    tensor(0.10000)
    """
    dim = class_dim(input)
    counts, target, scale = weigh(input, target, weight, ignore_index)
    picked = -input.gather(dim, target.unsqueeze(dim)).squeeze(dim)
    return reduced(where(counts, picked * scale, 0), reduction, scale.sum())


def class_dim(x: Tensor | RawArray) -> int:
    """Returns the dim of the classes."""
    return 0 if x.ndim == 1 else 1


def weigh(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns which targets count, the targets with class 0 for the ignored ones, and each one's weight."""
    counts = target != ignore_index
    target = where(counts, target, 0)
    return counts, target, counts.to(input.dtype) if weight is None else where(counts, weight[target], 0)


@nll_loss.check
def _check_nll(input, target, weight, ignore_index, reduction):
    check_reduction("nll_loss", reduction)
    if not input.ndim:
        raise ValueError("nll_loss(): expected 1 or more dimensions (got 0)")
    check_classes("nll_loss", input.data.shape, input.dtype, target, weight, ignore_index)
    return input, target.long(), weight, ignore_index, reduction


def check_classes(
    name: str, shape: tuple[int, ...], dtype: np.dtype, target: Tensor, weight: Tensor | None,
    ignore_index: int,
) -> None:
    """Raises unless `target` holds class indices that match the weight and logits of this shape and dtype."""
    require_float(dtype, name)
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
    text = f"{name}(): target {{bad}} is out of bounds, there are {classes} classes"
    check_range(target, 0, classes, text, IndexError, ignore_index)


def _check_weight(name, weight, classes):
    if weight.data.shape != (classes,):
        raise RuntimeError(
            f"{name}(): weight tensor should be defined either for all {classes} classes or no classes, "
            f"but got shape {weight.data.shape}"
        )


def _targets(x, target, weight, ignore_index):
    """Returns for an input (rows, C) which rows count, the index of each target, and each row's weight."""
    target = np.reshape(target, -1)
    counts = target != ignore_index
    target = np.where(counts, target, 0)
    scale = counts.astype(x.dtype) if weight is None else np.where(counts, weight[target], 0)
    return counts, (np.arange(x.shape[0], like=x), target), scale


class RowWeights(NamedTuple):
    """The weights in the loss of each row of logits, for class indices; in the form that kernels take.

    With the log-probabilities log_p, the loss of a row is
    - target_weight * log_p[target] - sum_c smoothing[c] * log_p[c].

    Attributes:
        target: the class, -1 in an ignored row.
        counts: False in an ignored row.
        target_weight: 0 in an ignored row.
        spread: of each class, by label smoothing; None without.
        norm: what "mean" divides the sum of all losses by.
    """

    target: RawArray
    counts: RawArray
    target_weight: RawArray
    smoothing: RawArray | None
    norm: RawArray


def row_weights(
    target: RawArray, weight: RawArray, ignore_index: int, smoothing: float, classes: int, dtype: np.dtype
) -> RowWeights:
    """Returns the weights for targets of any shape, one row per target."""
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
    by_class = np.full_like(target, each, dtype, shape=classes) if weight is None else each * weight
    return RowWeights(target, counts, (1 - smoothing) * scale, by_class, norm)


def class_last(x: RawArray) -> RawArray:
    """Moves the dim of the classes to the end; adds one for the batch to (C,)."""
    return x[None] if x.ndim == 1 else x if x.ndim == 2 else np.moveaxis(x, 1, -1)


def class_back(d: RawArray, shape: tuple[int, ...]) -> RawArray:
    """Undoes `class_last` and the reshape to rows."""
    if len(shape) < 3:
        return np.reshape(d, shape)
    return np.moveaxis(np.reshape(d, (shape[0], *shape[2:], shape[1])), -1, 1)


@nll_loss.manual
def _nll_loss(x, target, weight, ignore_index, reduction):
    shape, kind = x.shape, target.shape
    x = rows(class_last(x))
    counts, at, scale = _targets(x, target, weight, ignore_index)
    loss = np.where(counts, -x[at] * scale, 0)
    norm = np.sum(scale) if reduction == "mean" else 1
    slope = -scale / norm
    size, dtype = x.shape, x.dtype

    def vjp(g):
        d = np.zeros(size, dtype, like=g)
        d[at] = np.where(counts, slope * np.reshape(g, -1), 0)
        return class_back(d, shape)

    return np.reshape(loss, kind) if reduction == "none" else np.sum(loss) / norm, vjp


@legacy_reduction(before="ignore_index")
@composite
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0, dtype: DTypeLike = None,
) -> Tensor:
    """Returns the cross entropy of softmax(input) and target, - sum_c weight[c] p[c] log_softmax(input)[c].

    For class indices p is 1 for the target, else 0; smoothing replaces p by (1 - e) p + e / C.

    Args:
        input: logits, (N, C), (C,) or (N, C, d1, …).
        target: class indices, int64 or uint8, (N,), () or (N, d1, …); or probabilities in the input's shape.
        weight: of each class, (C,).
        ignore_index: elements with this target are ignored (class indices only).
        reduction: "mean" divides by the weights of all targets not ignored (NaN without any), for
            probabilities by the number of elements; "sum", "none".
        label_smoothing: e, from 0 to 1.
        dtype: the input is cast to it first; the result is the same as of `input.to(dtype)`. On a GPU half
            logits aren't stored as float32 for it: they are read, and their gradient is written, in half.

    Raises:
        IndexError: a target out of range (on a GPU: after the next wait).
        ValueError, RuntimeError: invalid shapes, dtypes, reduction or smoothing.
    Source: label smoothing: Szegedy et al., 2015, https://arxiv.org/abs/1512.00567, section 7.

    >>> F.cross_entropy(mytorch.tensor([[2.0, 0.0]]), mytorch.tensor([0]))
    tensor(0.12693)
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
def _check_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing, dtype):
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(
            f"cross_entropy(): label_smoothing must be between 0.0 and 1.0, got {label_smoothing}"
        )
    if dtype is not None:
        dtype = as_dtype(dtype)
        if dtype != FLOAT32 or not is_half(input.dtype):  # what variants compute in by themselves
            input = input.to(dtype)
    if target.data.shape == input.data.shape:  # PyTorch's rule for probabilities
        check_probabilities("cross_entropy", input.data.shape, input.dtype, target, weight, ignore_index)
    else:
        kind = input.dtype if dtype is None else dtype
        check_classes("cross_entropy", input.data.shape, kind, target, weight, ignore_index)
        target = target if target.dtype == np.int64 else target.long()
    return input, target, weight, ignore_index, reduction, label_smoothing, dtype


def check_probabilities(
    name: str, shape: tuple[int, ...], dtype: np.dtype, target: Tensor, weight: Tensor | None,
    ignore_index: int,
) -> None:
    """Raises unless `target`, of the logits' shape, holds probabilities."""
    require_float(dtype, name)
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
def _cross_entropy(x, target, weight, ignore_index, reduction, smoothing, dtype):
    """The manual backward; shifted logits, their exponentials and the gradient share one buffer.

    With p = softmax(x) the gradient of -log(p[t]) is p - onehot(t); smoothing adds a mean over all t.
    """
    if is_floating_point(target.dtype):
        return _from_probabilities(x, target, weight, reduction, smoothing)
    shape, kind = x.shape, target.shape
    z = rows(class_last(x))
    z = z - (np.max(z, axis=1, keepdims=True) if z.size else 0)  # so that exp can't overflow
    counts, at, scale = _targets(z, target, weight, ignore_index)
    norm = np.sum(scale) if reduction == "mean" else 1
    target_weight = total_weight = (1 - smoothing) * scale
    loss = -target_weight * z[at]
    if smoothing:
        by_class = smoothing / z.shape[1] * (np.ones_like(z, shape=z.shape[1:]) if weight is None else weight)
        total_weight = target_weight + np.sum(by_class)
        loss -= z @ by_class
    np.exp(z, out=z)
    total = row_sums(z)[:, 0]
    loss = np.where(counts, loss + total_weight * np.log(total), 0)
    if is_grad_enabled():
        z *= (np.where(counts, total_weight / norm, 0) / total)[:, None]
        z[at] -= np.where(counts, target_weight / norm, 0)
        if smoothing:
            z -= np.where(counts, 1 / norm, 0)[:, None].astype(z.dtype) * by_class

    def vjp(g):
        if is_on_host(g) and g.ndim == 0 and g == 1:  # the usual case: saves a pass
            return class_back(z, shape)
        return class_back(z * np.where(counts, np.reshape(g, -1), 0)[:, None], shape)

    return np.reshape(loss, kind) if reduction == "none" else np.sum(loss) / norm, vjp


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

    def each(g):
        """Returns the gradient of the loss of each element, with a dim for the classes."""
        return g / norm if reduction != "none" else np.expand_dims(g, dim)

    def dweight(g):
        d = -each(g) * log_p * smoothed
        return np.sum(d, axis=tuple(i for i in range(d.ndim) if i != dim))

    return reduced(loss, reduction, norm), (
        lambda g: each(g) * (np.exp(log_p) * np.sum(p, axis=dim, keepdims=True) - p),
        lambda g: each(g) * ((smoothing - 1) * by_class * log_p),
        None if weight is None else dweight,
    )
