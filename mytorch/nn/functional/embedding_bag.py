"""embedding_bag: sums, means or maxima of bags of rows of a table."""

from __future__ import annotations

import numpy as np

from ...autograd import is_grad_enabled
from ...core.tensor import Tensor, raw_of
from ...ops import arange, cat, full_like, searchsorted, where
from ...ops.bounds import check_range
from .composite import composite, require_float
from .embedding import renormalize

MODES = ("sum", "mean", "max")


@composite
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Returns the sum, mean or maximum of the rows of each bag, `weight[input[bag]]`; 0 if it is empty.

    Args:
        input: int64 or int32 indices of rows, (B, n) for bags of n, or (n,) with `offsets`.
        weight: (num_embeddings, embedding_dim)
        offsets: where each bag begins in a vector `input`, (B,), the first one 0.
        max_norm, norm_type, scale_grad_by_freq, sparse: see `embedding`.
        mode: "sum", "mean" or "max".
        per_sample_weights: factors of the rows, in the input's shape, for "sum" only.
        include_last_offset: the last offset is the end of the last bag, so that `offsets` is (B + 1,).
        padding_idx: a row that counts in no bag; negative ones count from the end.

    Returns:
        (B, embedding_dim)

    Raises:
        ValueError: shapes, modes or options that don't fit.
        NotImplementedError: `per_sample_weights` for another mode than "sum"; `sparse` with a gradient.
        RuntimeError: offsets that don't begin at 0 or exceed the input; an index out of range (both on a
            GPU: after the next wait); an invalid dtype or padding_idx.

    >>> F.embedding_bag(mytorch.tensor([[1, 0]]), mytorch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2.00000 3.00000]])
    """
    bags = offsets.shape[0] - include_last_offset
    bag = searchsorted(offsets, arange(input.shape[0], device=input.device), right=True) - 1
    counts = bag < bags
    if padding_idx is not None:
        counts = counts & (input != padding_idx)
    bag, counts = where(counts, bag, bags), counts.unsqueeze(1)
    rows = weight[input]
    if scale_grad_by_freq:
        uses = (input.reshape(-1, 1) == input).sum(1).unsqueeze(1)
        rows = rows.detach() + (rows - rows.detach()) / uses
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    zeros = rows.new_zeros((bags + 1, rows.shape[1]))  # the last for what doesn't count
    if mode == "max":
        return cat([rows, zeros[:1]]).gather(0, _largest(rows.detach(), bag, zeros)[:bags])
    total = zeros.index_add(0, bag, rows)[:bags]
    if mode == "mean":
        total = total / zeros[:, :1].index_add(0, bag, counts.to(rows.dtype))[:bags].clamp(min=1)
    return total


def _largest(rows: Tensor, bag: Tensor, zeros: Tensor) -> Tensor:
    """Returns the position of the first of the largest elements of each bag, in an empty one the end."""
    count = rows.shape[0]
    index = bag.unsqueeze(1).expand(-1, rows.shape[1])
    most = full_like(zeros, -np.inf).scatter_reduce(0, index, rows, "amax")
    position = arange(count, device=rows.device).unsqueeze(1)
    position = where((rows == most[bag]) | rows.isnan(), position, count)
    return full_like(zeros, count, dtype=position.dtype).scatter_reduce(0, index, position, "amin")


@embedding_bag.check
def _check(
    input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
    include_last_offset, padding_idx,
):
    if mode not in MODES:
        raise ValueError(f"embedding_bag(): mode has to be one of {MODES}, got {mode!r}")
    if mode == "max" and (scale_grad_by_freq or sparse):
        option = "scaling the gradient by the frequency" if scale_grad_by_freq else "sparse weights"
        raise ValueError(f"embedding_bag(): max mode does not support {option}")
    if weight.ndim != 2:
        raise ValueError(f"embedding_bag(): weight has to be a 2D Tensor, got shape {list(weight.shape)}")
    require_float(weight.dtype, "embedding_bag")
    if sparse and weight.requires_grad and is_grad_enabled():
        raise NotImplementedError("embedding_bag(): sparse gradients are not implemented; use sparse=False")
    _check_factors(input, weight, mode, per_sample_weights)
    offsets = _offsets(input, offsets, include_last_offset)
    if input.ndim == 2:
        include_last_offset = False
    rows = weight.shape[0]
    text = f"embedding_bag(): index out of range: {{bad}}, of {rows} rows"
    check_range(input, 0, rows, text)
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise RuntimeError(
                f"embedding_bag(): padding_idx must be within the number of embeddings, -{rows} to "
                f"{rows - 1}, but got {padding_idx}"
            )
        padding_idx %= rows
    if max_norm is not None:
        renormalize(weight, raw_of(input).reshape(-1), max_norm, norm_type)
    factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return (
        input.reshape(-1).long(), weight, offsets, None, norm_type, scale_grad_by_freq, mode, False, factors,
        bool(include_last_offset), padding_idx,
    )


def _check_factors(input: Tensor, weight: Tensor, mode: str, factors: Tensor | None) -> None:
    if input.dtype not in (np.int64, np.int32):
        raise RuntimeError(f"embedding_bag(): expected indices of dtype int64 or int32, got {input.dtype}")
    if factors is None:
        return
    if factors.shape != input.shape:
        raise ValueError(
            f"embedding_bag(): per_sample_weights must have the same shape as the input, "
            f"got {list(factors.shape)} and {list(input.shape)}"
        )
    if mode != "sum":
        raise NotImplementedError(
            f"embedding_bag(): per_sample_weights was not None. It is only supported for mode='sum', "
            f"got mode={mode!r}"
        )
    if factors.dtype != weight.dtype:
        raise RuntimeError(
            f"embedding_bag(): expected weight and per_sample_weights to have the same dtype, "
            f"got {weight.dtype} and {factors.dtype}"
        )


def _offsets(input: Tensor, offsets: Tensor | None, include_last: bool) -> Tensor:
    """Returns where the bags begin, as int64."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "embedding_bag(): if input is 2D, then offsets has to be None, as input is treated as a "
                f"mini-batch of fixed length sequences. However, found offsets of {list(offsets.shape)}"
            )
        bags, each = input.shape
        return arange(bags, device=input.device) * each
    if input.ndim != 1:
        raise ValueError(f"embedding_bag(): input has to be 1D or 2D Tensor, got shape {list(input.shape)}")
    if offsets is None or offsets.ndim != 1:
        found = "None" if offsets is None else f"shape {list(offsets.shape)}"
        raise ValueError(f"embedding_bag(): offsets has to be a 1D Tensor, got {found}")
    if include_last and not offsets.shape[0]:
        raise RuntimeError("embedding_bag(): include_last_offset: number of offsets should be at least 1")
    check_range(offsets[:1], 0, 1, "embedding_bag(): offsets[0] has to be 0, got {bad}")
    length = input.shape[0]
    text = f"embedding_bag(): offsets[-1] can not be greater than input's length {length}, got {{bad}}"
    check_range(offsets[-1:], 0, length + 1, text)
    return offsets.long()
