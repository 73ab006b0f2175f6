"""Which samples of a long list one test takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

import torch

ALL = os.environ.get("MYTORCH_TEST_ALL") == "1"


def share(samples: Iterable[Any], part: int, most: int) -> Iterator[Any]:
    """At most about `most` of the samples, evenly spread; the next part takes the next ones.

    Some lists are all combinations of all arguments, a thousand of them, and each of an operator's dtypes
    goes through the list: together they take every sample, or nearly. With MYTORCH_TEST_ALL=1 each takes all.
    """
    samples = list(samples)
    step = 1 if ALL else -(-len(samples) // most)
    return iter(samples[part % step :: step] if step > 1 else samples)


def first_of_each_kind(samples: Iterable[Any]) -> Iterator[Any]:
    """The samples that have two arguments of kinds (see `kind_of`) that none before had together.

    With MYTORCH_TEST_ALL=1 all of them.
    """
    seen = set()
    for sample in samples:
        arguments = {**dict(enumerate((sample.input, *sample.args))), **sample.kwargs}
        kinds = [(name, kind_of(value)) for name, value in arguments.items()]
        pairs = {(len(kinds),), *combinations(kinds, 2), *combinations(kinds, 1)}
        if ALL or not pairs <= seen:
            seen |= pairs
            yield sample


def kind_of(x: Any) -> Any:
    """What makes a sample another case: dims, emptiness, dtype and strides of tensors; flags, names and modes
    as they are; of numbers the type and the sign; of lists the kinds of items in them."""
    if isinstance(x, torch.Tensor):
        return x.ndim, x.numel() == 0, x.dtype, x.is_contiguous()
    if isinstance(x, dict):
        return tuple([(name, kind_of(value)) for name, value in sorted(x.items())])
    if isinstance(x, (tuple, list)):
        return type(x).__name__, tuple(dict.fromkeys(map(kind_of, x)))
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return type(x).__name__, (x > 0) - (x < 0)
    return str(x) if isinstance(x, (bool, str, type(None), torch.dtype)) else type(x).__name__
