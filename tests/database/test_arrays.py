"""PyTorch's samples as Arrays: a function returns Tensors of the same values, a method Arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Array, Tensor

from .names import FAMILIES
from .test_operators import ENTRIES, samples
from .translate import Foreign, ours

# Of these the values aren't drawn with the seed, or the sample isn't a call of the name.
SKIPPED = {"empty", "empty_like", "new_empty"}


def as_arrays(x: Any) -> Any:
    if isinstance(x, Tensor):
        return Array(x.data)
    if isinstance(x, (tuple, list)):
        return type(x)(map(as_arrays, x))
    return {k: as_arrays(v) for k, v in x.items()} if isinstance(x, dict) else x


def flat(x: Any):
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from flat(item)
    else:
        yield x


def compare(call, sample, kind: type) -> None:
    results = []
    for convert in (lambda x: x, as_arrays):
        args, kwargs = ours(((sample.input, *sample.args), sample.kwargs))
        mytorch.manual_seed(0)
        results.append(call(*convert(args), **convert(kwargs)))
    for want, got in zip(*map(flat, results), strict=True):
        if isinstance(want, Tensor):
            assert type(got) is kind and got.dtype == want.dtype and tuple(got.shape) == tuple(want.shape)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
        else:
            assert got == want or got != got


def ways(entry):
    """(call, the kind of its results) for each way to call it with this name."""
    for space in (mytorch, mytorch.nn.functional, mytorch.linalg, mytorch.special):
        name = entry.name.removeprefix("nn.functional.").removeprefix("linalg.").removeprefix("special.")
        full = f"{space.__name__}.{name}".removeprefix("mytorch.")
        if full == entry.name and hasattr(space, name):
            yield getattr(space, name), Tensor
    for name in (entry.name, f"{entry.name}_"):
        if hasattr(Tensor, name) and callable(getattr(Array, name, None)):
            yield lambda x, *args, name=name, **kwargs: getattr(x, name)(*args, **kwargs), Array


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_arrays_in_place_of_tensors(family):
    failures, count = [], 0
    for entry in (e for name in FAMILIES[family].split() for e in ENTRIES[name][:1] if name not in SKIPPED):
        dtype = torch.float32 if torch.float32 in entry.dtypes else torch.int64
        for sample, _ in list(samples(entry, dtype))[:2]:
            sample = sample.transform(lambda t: t.detach() if isinstance(t, torch.Tensor) else t)
            for call, kind in ways(entry):
                try:
                    call(*ours((sample.input, *sample.args)), **ours(sample.kwargs))
                except (Foreign, RuntimeError, TypeError, ValueError):
                    continue  # not a call of this form, with Tensors either
                try:
                    compare(call, sample, kind)
                    count += 1
                except Exception as error:
                    failures.append(f"{entry.name} as {kind.__name__}: {type(error).__name__}: {error}"[:300])
    assert count and not failures, f"{len(failures)} of {count}:\n" + "\n".join(failures)
