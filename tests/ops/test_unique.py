"""unique and unique_consecutive against PyTorch."""

import itertools

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
nan, inf = np.nan, np.inf
INPUTS = {
    "vector": np.array([3, 1, 1, 2, 2, 3, 3]), "0-d": np.array(4), "nothing": np.zeros((0,), "int64"),
    "no rows": np.zeros((0, 3), "float32"), "one": np.array([7.0]), "equal": np.ones((3, 4), "float32"),
    "matrix": rng.integers(0, 2, (6, 2)), "3-d": rng.integers(0, 2, (3, 4, 2)),
    "bool": rng.random((5, 2)) < 0.5, "uint8": rng.integers(0, 3, (2, 9)).astype("uint8"),
    "float16": rng.integers(0, 3, 9).astype("float16"), "transposed": rng.integers(0, 2, (4, 3)).T,
    "reversed": np.array([1, 1, 2, 3, 3])[::-1],
    "NaN and inf": np.array([nan, 1, inf, nan, -inf, 1], "float32"), "zeros": np.array([0.0, -0.0, 1.0]),
}


@pytest.mark.parametrize("dim", [None, 0, -1, 1])
@pytest.mark.parametrize("kind", INPUTS)
def test_agrees_with_pytorch(kind, dim):
    x = INPUTS[kind]
    if kind == "NaN and inf" and dim is not None:
        x = x[4:]  # PyTorch's sort of slices takes NaN for equal to everything
    for inverse, counts in itertools.product((False, True), repeat=2):
        how = {"return_inverse": inverse, "return_counts": counts, "dim": dim}
        for name in ("unique", "unique_consecutive"):
            ours, theirs = getattr(mytorch, name), getattr(torch, name)
            try:
                theirs(torch.tensor(x.copy()), **how)
            except Exception as refused:
                with pytest.raises(type(refused), match="[Dd]im|no elements"):
                    ours(Tensor(x), **how)
                continue
            check(ours, theirs, x, grad=False, **how)
            check(getattr(Tensor, name), getattr(torch.Tensor, name), x, grad=False, **how)


def test_positional_arguments():
    x = INPUTS["matrix"]
    check(mytorch.unique, torch.unique, x, True, True, True, 0)
    check(mytorch.unique_consecutive, torch.unique_consecutive, x, True, True, 0)
    check(lambda a: mytorch.unique(input=a, axis=0), lambda a: torch.unique(a, dim=0), x)
    ours, theirs = mytorch.unique(Tensor(x), sorted=False), torch.unique(torch.from_numpy(x), sorted=False)
    assert sorted(ours.tolist()) == sorted(theirs.tolist())


def test_the_parts_fit_together():
    x = rng.integers(0, 9, (7, 5))
    values, inverse, counts = Tensor(x).unique(return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(values[inverse].numpy(), x)
    assert counts.sum() == 35 and isinstance(Tensor(x).unique(), Tensor)


FAILS = {
    "no such dim": (lambda t, a: t.unique(a, dim=2), np.ones((2, 2)), "range"),
    "no dims": (lambda t, a: t.unique(a, dim=0), np.ones(()), "no dimensions"),
    "empty slices": (lambda t, a: t.unique(a, dim=0), np.ones((2, 0)), r"slices of shape \(0,\) along dim 0"),
    "not a tensor": (lambda t, a: t.unique([1, 2]), np.ones(2), "Tensor"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, x, match = FAILS[what]
    fails_alike(lambda a: call(mytorch, a), lambda a: call(torch, a), x, match=match)
