"""
The cross entropy of a linear layer's output, as in a language model's head, without storing all logits.

For 64 x 1024 tokens and 50,257 classes the logits take 13 GB in float32, and so does their gradient. Here the
rows are processed in chunks: logits, loss and gradients of one chunk before the next.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...autograd import is_grad_enabled
from ...backends.blas import add_product, column_sums, row_sums, rows
from ...backends.device import RawArray, is_raw
from ...backends.dtypes import is_floating_point
from ...backends.memory_order import in_c_order
from ...core.grad_accumulator import LazyGrad
from ...core.tensor import Tensor
from ...ops import contiguous
from .composite import Unsupported, composite
from .cross_entropy import RowWeights, check_classes, check_probabilities, cross_entropy, row_weights
from .loss import check_reduction, reduced
from .types import DTypeLike

# Bytes of a chunk's logits: small enough for the cache, large enough that dweight, to which each chunk adds,
# is read and written few times.
CHUNK_BYTES = {"cpu": 48 << 20, "cuda": 256 << 20, "meta": 48 << 20}


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Options of `linear_cross_entropy`; the arguments are PyTorch's.

    Only the size of the chunks has an effect: here backward may always run several times, and sums are in
    float32 or better.

    Args:
        allow_retain_graph: in PyTorch: that backward may run twice.
        batch_chunk_size: rows of a chunk.
        chunking_method: "auto": some MB of logits per chunk; "aspect_ratio:N": a chunk's logits take about
            1 / N of the input's memory; None: `batch_chunk_size`, or all rows.
        acc_policy: "auto", "accurate", "balanced" or "compact": in PyTorch, what is summed in `acc_dtype`.
        acc_dtype: in PyTorch, the dtype of sums.

    Raises:
        ValueError: an unknown policy or method; a chunk size that is not a positive int.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DTypeLike = None

    def __post_init__(self):
        size, method = self.batch_chunk_size, self.chunking_method
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if method not in (None, "auto"):
            name, _, factor = method.partition(":")
            if name != "aspect_ratio" or not (factor or "1").isdigit() or not int(factor or 1):
                raise ValueError(f"invalid chunking_method: {method!r}")

    def rows(self, count: int, features: int, classes: int, device: str) -> int:
        """Returns the number of rows per chunk, of `count` rows.

        Raises:
            ValueError: the two options contradict each other.
        """
        requested, method = self.batch_chunk_size, self.chunking_method
        if method == "auto":
            return requested or max(16, CHUNK_BYTES[device] // (4 * max(classes, 1)) // 16 * 16)
        if method is None:
            return requested or max(count, 1)
        wanted = math.ceil(count / math.ceil(max(classes, 1) / max(features, 1)))
        power = 1 << max(wanted - 1, 0).bit_length()
        size = max(1, min(power // int(method.partition(":")[2] or 1), count))
        if requested not in (None, size):
            raise ValueError(
                f"batch_chunk_size (={requested}) and chunking_method ('{method}') give different chunk "
                f"sizes ({requested} vs {size}); pass only one."
            )
        return size


@composite(order=contiguous)
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """Returns cross_entropy(linear(input, linear_weight, linear_bias), target, …), in chunks of rows.

    The logits are never all in memory. If gradients are required, those of the input, the weight and the bias
    are computed with the loss, and backward scales them; with reduction "none" it recomputes the logits.

    Args:
        input: (N, in_features) or (in_features,).
        linear_weight: (C, in_features), or (C, d1, …, in_features) for logits (N, C, d1, …).
        target: class indices, (N,), () or (N, d1, …); or probabilities in the logits' shape, for which all
            logits are stored.
        linear_bias: (C,) or (C, d1, …).
        weight: of each class, (C,).
        reduction, label_smoothing: as for `cross_entropy`.
        ignore_index: elements with this target are ignored; default -100 (class indices only).
        options: `LinearCrossEntropyOptions`, for another size of chunks.

    Raises:
        IndexError: a target out of range (on a GPU: after the next wait).
        RuntimeError, TypeError, ValueError: invalid shapes, dtypes or options.
    Source: gradients together with the loss, in chunks: Hsu et al., "Liger Kernel: Efficient Triton Kernels
        for LLM Training", 2024, https://arxiv.org/abs/2410.10989, section 3.2.

    >>> F.linear_cross_entropy(mytorch.ones(1, 2), mytorch.eye(2), mytorch.tensor([0]))
    tensor(0.69315)
    """
    *outputs, features = linear_weight.shape
    logits = input @ linear_weight.reshape(math.prod(outputs), features).T
    if linear_bias is not None:
        logits = logits + linear_bias.reshape(-1)
    logits = logits.reshape(*input.shape[:-1], *outputs)
    return cross_entropy.reference(
        logits, target, weight, ignore_index, reduction, label_smoothing
    )


class Plan(NamedTuple):
    """Made by the checker: the rows per chunk, and which inputs require a gradient."""

    rows: int
    input: bool
    linear_weight: bool
    linear_bias: bool


@linear_cross_entropy.check
def _check(
    input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, options
):
    name, x, w = "linear_cross_entropy", input.data.shape, linear_weight.data.shape
    check_reduction(name, reduction)
    _check_shapes(name, x, w, None if linear_bias is None else linear_bias.data.shape)
    given = [t.dtype for t in (input, linear_weight, linear_bias) if t is not None]
    if len(set(given)) > 1:
        raise RuntimeError(
            f"{name}(): expected input, linear_weight and linear_bias to have the same dtype, got "
            f"{', '.join(map(str, given))}"
        )
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"{name}(): label_smoothing must be between 0.0 and 1.0, got {label_smoothing}")
    if options is not None and not isinstance(options, LinearCrossEntropyOptions):
        raise TypeError(f"{name}(): options must be LinearCrossEntropyOptions, got {type(options).__name__}")
    logits = (*x[:-1], *w[:-1])
    if target.data.shape == logits:
        if ignore_index is not None:
            raise RuntimeError(
                f"{name}(): ignore_index cannot be specified when target contains probabilities"
            )
        ignore_index = -100
        check_probabilities(name, logits, input.dtype, target, weight, ignore_index)
    else:
        ignore_index = -100 if ignore_index is None else ignore_index
        check_classes(name, logits, input.dtype, target, weight, ignore_index)
        target = target.long()
    count, device = math.prod(x[:-1]), input.device.type
    rows = (options or LinearCrossEntropyOptions()).rows(count, x[-1], w[0], device)
    wanted = [is_grad_enabled() and t is not None and t.requires_grad
              for t in (input, linear_weight, linear_bias)]
    return (
        input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing,
        Plan(rows, *wanted),
    )


def _check_shapes(name, x, w, bias):
    if len(x) not in (1, 2):
        raise RuntimeError(f"{name}(): expected input with dimensionality 1 or 2, got {len(x)}")
    if len(w) < 2:
        raise RuntimeError(f"{name}(): expected linear_weight with dimensionality at least 2, got {len(w)}")
    if x[-1] != w[-1]:
        raise RuntimeError(
            f"{name}(): expected equal input and linear_weight last dimensions (in_features), got {x[-1]} "
            f"and {w[-1]}"
        )
    if bias is not None and bias != w[:-1]:
        raise RuntimeError(f"{name}(): expected linear_bias shape {w[:-1]}, got {bias}")
    if len(w) > 2 and len(x) < 2:
        raise RuntimeError(
            f"{name}(): linear_weight of shape {w} requires batched input, (N, {x[-1]}), got shape {x}"
        )


# (logits, weights of their rows, factors or None) -> losses. With factors it overwrites the logits with the
# gradient of sum_i factors[i] * losses[i].
RowLosses = Callable[[RawArray, RowWeights, RawArray | None], RawArray]


def by_chunks(row_losses: RowLosses, *arguments: Any) -> tuple[RawArray, Callable]:
    """Returns the result and vjp of `linear_cross_entropy`; `row_losses` computes all but the products.

    The gradients are sums over rows, multiplied by g and divided by the mean's count at the end: g is unknown
    before, and small values would be lost in half precision.
    """
    x, w, target, bias, weight, reduction, ignore_index, smoothing, plan = arguments
    if is_floating_point(target.dtype):
        raise Unsupported("chunks are for class indices: probabilities are as large as the logits")
    dtype = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    batch = x.shape[:-1]
    columns = _by_position(target, batch)
    weights = row_weights(columns, weight, ignore_index, smoothing, w.shape[0], dtype)
    norm = weights.norm if reduction == "mean" else None
    run = functools.partial(_run, row_losses, x, w, bias, weights, plan, dtype)

    def finished(losses):
        if reduction == "none":
            losses = np.reshape(np.reshape(losses, columns.shape).T, target.shape)
        return in_c_order(np.asarray(reduced(losses, reduction, norm), like=x)).astype(x.dtype, copy=False)

    def scale(g):
        return g if norm is None else np.where(norm == 0, 0, g / norm)

    if reduction == "none":
        return finished(run(None)[0]), lambda g: _as(x, run(_factors(weights, _by_position(g, batch)))[1], 1)
    if not any(plan[1:]):  # recorded for higher order only: computed again
        return finished(run(None)[0]), lambda g: _as(x, run(_factors(weights, 1))[1], scale(g))
    losses, gradients = run(_factors(weights, 1))
    return finished(losses), lambda g: _as(x, gradients, scale(g))


def _as(like: RawArray, gradients: Sequence[RawArray | None], scale: RawArray) -> tuple[LazyGrad | None, ...]:
    """Returns the gradients as lazy ones, scaled and in the dtype of `like`."""
    return tuple([None if d is None else LazyGrad(d.shape, like, _scaled(d, scale)) for d in gradients])


def _scaled(d: RawArray, scale: RawArray) -> Callable:
    def compute(out, beta):
        if beta:
            out += d * scale
        else:
            np.multiply(d, scale, out=out, casting="same_kind")

    return compute


def _by_position(a: RawArray, batch: tuple[int, ...]) -> RawArray:
    """Returns (N, d1, …) as (d1 * …, N): the rows of each position d1, … contiguous."""
    count = math.prod(batch)
    return np.ascontiguousarray(np.reshape(a, (count, math.prod(a.shape[len(batch) :]))).T, like=a)


def _factors(weights: RowWeights, factor: RawArray | float) -> RawArray:
    """Returns `factor` in rows that count, else 0."""
    factor = np.reshape(factor, -1) if is_raw(factor) else factor
    return np.where(weights.counts, factor, 0).astype(weights.target_weight.dtype, copy=False)


def _run(
    row_losses: RowLosses, x: RawArray, w: RawArray, bias: RawArray, weights: RowWeights, plan: Plan,
    dtype: np.dtype, factors: RawArray,
) -> tuple[RawArray, tuple]:
    """Returns the losses of all rows, and with factors the gradients that the plan names."""
    shapes = [x.shape, w.shape, w.shape[:-1]]
    x, features, classes = rows(x), x.shape[-1], w.shape[0]
    positions, count = math.prod(w.shape[1:-1]), x.shape[0]
    w = np.reshape(w, (classes, positions, features))
    losses = np.empty(positions * count, dtype, like=x)
    wanted = [
        factors is not None and a is not None and (want or not any(plan[1:]))
        for a, want in zip((x, w, bias), plan[1:], strict=True)
    ]
    dx, dw, db = gradients = [
        np.zeros(a, dtype, like=x) if want else None
        for a, want in zip((x.shape, w.shape, w.shape[:-1]), wanted, strict=True)
    ]
    buffer = np.empty((min(plan.rows, count), classes), x.dtype, like=x)
    for k, first in itertools.product(range(positions), range(0, count, plan.rows)):
        part = x[first : first + plan.rows]
        at = slice(k * count + first, k * count + first + len(part))
        z = buffer[: len(part)]
        if bias is not None:
            z[...] = np.reshape(bias, (classes, positions))[:, k]
        add_product(part, w[:, k].T, z, bias is not None)  # rounded once in half precision
        chunk = weights._replace(
            target=weights.target[at], counts=weights.counts[at], target_weight=weights.target_weight[at]
        )
        losses[at] = row_losses(z, chunk, None if factors is None else factors[at])
        if dx is not None:
            add_product(z, w[:, k], dx[first : first + len(part)], k > 0)
        if dw is not None:
            add_product(z.T, part, dw[:, k], first > 0)
        if db is not None:
            db[:, k] += column_sums(z.astype(dtype, copy=False))
    dx, dw, db = [d if d is None else np.reshape(d, a) for d, a in zip(gradients, shapes, strict=True)]
    return losses, (dx, dw, None, db)


@linear_cross_entropy.manual
def _linear_cross_entropy(x, *arguments):
    return by_chunks(_row_losses, x, *arguments)


def _row_losses(z: RawArray, weights: RowWeights, factors: RawArray | None) -> RawArray:
    """See `RowLosses`; the steps are those of the manual `cross_entropy`."""
    target, counts, target_weight, smoothing, _ = weights
    at = np.arange(len(z), like=z), np.where(counts, target, 0)
    if z.size:
        z -= np.max(z, axis=1, keepdims=True)
    losses, total_weight = -target_weight * z[at], target_weight
    if smoothing is not None:
        losses, total_weight = losses - z @ smoothing, target_weight + np.sum(smoothing)
    np.exp(z, out=z)
    total = row_sums(z)[:, 0]
    if factors is not None:
        z *= (total_weight * factors / total)[:, None]
        z[at] -= target_weight * factors
        if smoothing is not None:
            z -= factors[:, None] * smoothing
    return np.where(counts, losses + total_weight * np.log(total), 0)
