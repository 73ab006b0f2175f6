"""Connectionist temporal classification: the loss of a sequence of labels whose positions are unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...backends.device import RawArray, on
from ...core.tensor import Tensor, raw_of
from ...ops import arange, cat, clamp, full_like, stack, tensor, where
from ...ops.bounds import check_range
from ...ops.gather_scatter import scatter_sum
from .composite import composite, require_float
from .loss import check_reduction, reduced

# A path is a class a step; without repetitions and then without blanks it reads as the labels. Its states
# are the labels with blanks between them and at both ends, s = 0 … 2 L. From one step to the next it stays in
# its state or moves on by one, or by two if that leaves out a blank between two different labels. alpha[t, s]
# is the log-probability of all paths up to step t that end in s, beta[t, s] that of all their continuations.

NEVER = -1e30  # the logarithm of 0 in the reference: finite, for the sake of its gradient


@composite
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int], blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Returns - log of the probability of the labels, summed over all paths that read as them.

    Args:
        log_probs: logarithms of softmax, (T, N, C) or (T, C). As in PyTorch the gradient is that of the loss
            after log_softmax: the gradient by its input, if `log_probs` is its result.
        targets: labels, (N, S), (S,) for one sequence, or those of all sequences one after the other.
        input_lengths, target_lengths: the number of steps and of labels of each sequence, (N,) or ().
        blank: the class of a step without a label.
        reduction: "mean" divides each loss by its number of labels first, "sum", "none".
        zero_infinity: 0 for an infinite loss, that of more labels than steps, and its gradient.

    Raises:
        RuntimeError: invalid shapes, dtypes, lengths, labels or blank.
        ValueError: invalid reduction.
    Source: Graves et al., "Connectionist Temporal Classification", 2006, equations 6 to 16,
        https://www.cs.toronto.edu/~graves/icml_2006.pdf

    >>> log_probs = mytorch.zeros(4, 1, 3).log_softmax(2)
    >>> F.ctc_loss(log_probs, mytorch.tensor([[1, 2]]), mytorch.tensor([4]), mytorch.tensor([2]))
    tensor(0.84320)
    """
    steps, batch, classes = log_probs.shape[0], log_probs.shape[1:-1], log_probs.shape[-1]
    log_probs = log_probs.reshape(steps, math.prod(batch), classes)
    with on(targets.device):
        states, skips = (Tensor(a) for a in _states(raw_of(targets), blank))
    alpha = full_like(states, NEVER, dtype=log_probs.dtype)
    alpha[:, :1] = 0
    time = arange(steps, device=targets.device).reshape(-1, 1)
    for t in range(steps):
        before = [alpha, _moved(alpha, 1), where(skips, _moved(alpha, 2), NEVER)]
        new = stack(before).logsumexp(0) + log_probs[t].gather(1, states)
        alpha = where((t < input_lengths).unsqueeze(1), new, alpha)
    ends = alpha.gather(1, stack([2 * target_lengths, clamp(2 * target_lengths - 1, 0)], 1))
    loss = -stack([ends[:, 0], where(target_lengths > 0, ends[:, 1], NEVER)]).logsumexp(0)
    p = where((time < input_lengths).unsqueeze(2), log_probs.exp(), 0).sum((0, 2))
    infinite = loss > -NEVER / 10
    if zero_infinity:
        loss = where(infinite, 0, loss + p - p.detach())
    else:  # 1 / (0 p) is infinite and its gradient NaN
        loss = where(infinite, 1 / (p * ~infinite), loss + p - p.detach())
    loss = loss / clamp(target_lengths, 1) if reduction == "mean" else loss
    return reduced(loss.reshape(batch), reduction)


def _moved(alpha: Tensor, by: int) -> Tensor:
    """Returns the states moved on by 1 or 2."""
    width = min(by, alpha.shape[1])
    return cat([full_like(alpha[:, :width], NEVER), alpha[:, : alpha.shape[1] - width]], 1)


@ctc_loss.check
def _check(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    check_reduction("ctc_loss", reduction)
    require_float(log_probs.dtype, "ctc_loss")
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"ctc_loss(): expected log_probs of 2 or 3 dims, got {list(log_probs.shape)}")
    steps, classes = log_probs.shape[0], log_probs.shape[-1]
    count = math.prod(log_probs.shape[1:-1])
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss(): blank must be in label range, 0 to {classes - 1}, got {blank}")
    if not count:
        raise RuntimeError(f"ctc_loss(): batch size must not be zero, got {list(log_probs.shape)}")
    inputs = _lengths("input_lengths", input_lengths, count)
    labels = _lengths("target_lengths", target_lengths, count)
    if inputs.max() > steps:
        raise RuntimeError(f"ctc_loss(): expected input_lengths of at most {steps}, got {inputs.max()}")
    targets = _padded(targets, labels, blank)
    text = f"ctc_loss(): expected labels from 0 to {classes - 1}, got {{bad}}"
    check_range(targets, 0, classes, text)
    inputs, labels = (tensor(lengths, device=log_probs.device) for lengths in (inputs, labels))
    return log_probs, targets, inputs, labels, blank, reduction, zero_infinity


def _lengths(name: str, lengths: Tensor | Sequence[int], count: int) -> np.ndarray:
    """Returns the lengths as a vector of int64 on the CPU."""
    raw = lengths.cpu().numpy() if isinstance(lengths, Tensor) else np.asarray(lengths)
    if raw.dtype.kind not in "iu":
        raise RuntimeError(f"ctc_loss(): {name} must be integral, got {raw.dtype}")
    if raw.size != count:
        raise RuntimeError(f"ctc_loss(): {name} must be of size batch_size, {count}, got {raw.size}")
    if raw.min() < 0:
        raise RuntimeError(f"ctc_loss(): {name} must not be negative, got {raw.min()}")
    return raw.reshape(-1).astype(np.int64)


def _padded(targets: Tensor, lengths: np.ndarray, blank: int) -> Tensor:
    """Returns the labels as (N, S) int64, S the largest length, with blanks after the shorter ones."""
    longest = int(lengths.max())
    position = np.arange(longest)
    inside = position < lengths[:, None]
    if targets.ndim == 1:
        if targets.shape[0] != lengths.sum():
            raise RuntimeError(
                f"ctc_loss(): expected targets of {lengths.sum()} labels, the sum of target_lengths, "
                f"got {targets.shape[0]}"
            )
        starts = np.cumsum(lengths) - lengths
        index = np.where(inside, starts[:, None] + position, 0)
        rows = cat([targets, targets.new_zeros(1)])[tensor(index, device=targets.device)]
    elif targets.ndim == 2 and targets.shape[0] == len(lengths) and targets.shape[1] >= longest:
        rows = targets[:, :longest]
    else:
        raise RuntimeError(
            f"ctc_loss(): expected targets of shape ({len(lengths)}, {longest} or more), "
            f"got {list(targets.shape)}"
        )
    return where(tensor(inside, device=targets.device), rows.long(), blank)


def _states(targets: RawArray, blank: int) -> tuple[RawArray, RawArray]:
    """Returns the class of each state, (N, 2 S + 1), and whether paths enter it from two states before."""
    n, labels = targets.shape
    states = np.full_like(targets, blank, shape=(n, 2 * labels + 1))
    states[:, 1::2] = targets
    skips = np.zeros_like(states, dtype=bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    return states, skips


def _advance(alpha: RawArray, skips: RawArray) -> RawArray:
    """Returns the log-probabilities of the states one step later, before the step's own."""
    new = alpha.copy()
    new[:, 1:] = np.logaddexp(new[:, 1:], alpha[:, :-1])
    new[:, 2:] = np.where(skips[:, 2:], np.logaddexp(new[:, 2:], alpha[:, :-2]), new[:, 2:])
    return new


def _retreat(beta: RawArray, skips: RawArray) -> RawArray:
    """Returns the sums over the states that one step leads to: the adjoint of `_advance`."""
    new = beta.copy()
    new[:, :-1] = np.logaddexp(new[:, :-1], beta[:, 1:])
    new[:, :-2] = np.where(skips[:, 2:], np.logaddexp(new[:, :-2], beta[:, 2:]), new[:, :-2])
    return new


@ctc_loss.manual
def _ctc_loss(x, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    shape, dtype, (steps, *_, classes), count = x.shape, x.dtype, x.shape, targets.shape[0]
    x = np.reshape(x, (steps, count, classes)).astype(np.float64)  # the recursions lose digits
    states, skips = _states(targets, blank)
    at = np.broadcast_to(states, (steps, *states.shape))
    emit = np.take_along_axis(x, at, axis=2)
    alphas = np.empty_like(x, shape=(steps + 1, *states.shape))  # of every step, after the start
    alphas[0] = -math.inf
    alphas[0, :, 0] = 0
    for t in range(steps):
        alphas[t + 1] = _advance(alphas[t], skips) + emit[t]
    end = np.full_like(x, -math.inf, shape=states.shape)
    sequence = np.arange(count, like=x)
    end[sequence, 2 * target_lengths] = 0
    end[sequence, np.maximum(2 * target_lengths - 1, 0)] = 0
    last = alphas[input_lengths, sequence] + end
    most = np.max(last, axis=1)
    safe = np.where(np.isfinite(most), most, 0)
    loss = -(np.log(np.sum(np.exp(last - safe[:, None]), axis=1)) + safe)
    infinite = np.isinf(loss)
    kept = np.where(infinite, 0, loss) if zero_infinity else loss
    labels = np.maximum(target_lengths, 1).astype(dtype)
    kept = kept / labels if reduction == "mean" else kept

    def vjp(g):
        scale = np.broadcast_to(g, (count,)) if g.ndim == 0 else np.reshape(g, (count,))
        if reduction == "mean":
            scale = scale / (count * labels)
        gamma = _occupation(alphas, emit, end, skips, input_lengths, loss)
        index = (sequence[:, None] * classes + states).reshape(-1)
        gamma = np.reshape(gamma, (steps, -1))
        used = scatter_sum(gamma, (index,), (1,), (steps, count * classes))
        valid = np.arange(steps, like=x)[:, None] < input_lengths
        d = np.where(valid[:, :, None], np.exp(x) - np.reshape(used, x.shape), 0)
        d = np.where((valid & infinite)[:, :, None], 0 if zero_infinity else math.nan, d)
        return np.reshape(d * scale[:, None], shape).astype(dtype, copy=False)

    return reduced(np.reshape(kept, shape[1:-1]), reduction).astype(dtype), vjp


def _occupation(alphas, emit, end, skips, input_lengths, loss):
    """Returns the probability of each state at each step, given the labels; (T, N, states)."""
    gamma = np.empty_like(emit)
    beta = end
    for t in reversed(range(emit.shape[0])):
        if t + 1 < emit.shape[0]:
            beta = _retreat(beta + emit[t + 1], skips)
        beta = np.where((t + 1 >= input_lengths)[:, None], end, beta)
        gamma[t] = np.exp(alphas[t + 1] + beta + loss[:, None])
    return gamma
