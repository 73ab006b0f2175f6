"""Samples from multinomial distributions."""

from __future__ import annotations

import math

import numpy as np

from ..backends.device import RawArray, on
from ..backends.dtypes import is_floating_point
from ..core.tensor import Tensor, from_raw, raw_of
from ..random import Generator, generator_on
from .bounds import require_all
from .random import tensor_argument
from .scalars import integer

__all__ = ["multinomial"]

_MOST = 2**24  # as in PyTorch


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Samples `num_samples` indices of each row, with the probabilities in the row.

    Without replacement these are the indices of the least E / p, E exponentially distributed (Efraimidis and
    Spirakis 2006, https://doi.org/10.1016/j.ipl.2005.11.003); with it, the cumulative sums are searched.

    Args:
        input: probabilities, not necessarily of sum 1, of shape (categories) or (rows, categories).

    Returns:
        int64, (num_samples) or (rows, num_samples).

    Raises:
        RuntimeError: wrong shape or dtype, negative or infinite probabilities, a row of zeros; without
            replacement, more samples than categories with a probability above 0.

    >>> mytorch.multinomial(mytorch.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1 1])
    """
    num_samples = integer(num_samples, "multinomial")
    p = raw_of(tensor_argument(input, "multinomial"))
    if p.ndim not in (1, 2) or not is_floating_point(p.dtype):
        raise RuntimeError(
            f"multinomial(): expected floats in 1 or 2 dimensions, got {p.dtype} of shape {p.shape}"
        )
    if p.shape[-1] > _MOST:
        raise RuntimeError(f"multinomial(): number of categories cannot exceed {_MOST}, got {p.shape[-1]}")
    if num_samples <= 0:
        raise RuntimeError(f"multinomial(): num_samples must be positive, got {num_samples}")
    rng = generator_on(input.device, generator).rng
    with on(input.device):
        rows = p.reshape((1, *p.shape) if p.ndim == 1 else p.shape).astype(np.float64)
        _check_distributions(rows, num_samples, replacement)
        draw = with_replacement if replacement and num_samples > 1 else without_replacement
        return from_raw(draw(rows, num_samples, rng).reshape((*p.shape[:-1], num_samples)))


def _check_distributions(rows: RawArray, num_samples: int, replacement: bool) -> None:
    if not replacement and num_samples > rows.shape[1]:
        raise RuntimeError(f"multinomial(): can't draw {num_samples} of {rows.shape[1]} without replacement")
    are_known = np.logical_and(np.isfinite(rows), rows >= 0)
    _require(are_known, "the probabilities contain inf, NaN or negative numbers")
    _require(np.any(rows > 0, axis=1), "a distribution has no probability above 0")
    if not replacement:
        enough = np.sum(rows > 0, axis=1) >= num_samples
        _require(enough, f"fewer than {num_samples} categories have a probability above 0")


def _require(valid: RawArray, text: str) -> None:
    require_all(valid, f"multinomial(): {text}")


def without_replacement(p: RawArray, num_samples: int, rng: np.random.Generator) -> RawArray:
    """Samples by exponential keys; of one sample it is also the fastest way."""
    with np.errstate(all="ignore"):
        keys = np.where(p > 0, rng.standard_exponential(p.shape, dtype=np.float64) / p, math.inf)
    if num_samples == 1:
        return np.argmin(keys, axis=1).astype(np.int64, copy=False)
    return np.argsort(keys, axis=1)[:, :num_samples].astype(np.int64, copy=False)


def with_replacement(p: RawArray, num_samples: int, rng: np.random.Generator) -> RawArray:
    """Samples by searching uniform numbers in the cumulative sums."""
    drawn = np.empty((p.shape[0], num_samples), np.int64, like=p)
    for row, total in enumerate(np.cumsum(p, axis=1)):
        last = np.searchsorted(total, total[-1:], side="left")  # where rounding would lead past the end
        found = np.searchsorted(total, rng.random(num_samples, dtype=np.float64) * total[-1], side="right")
        drawn[row] = np.minimum(found, last)
    return drawn
