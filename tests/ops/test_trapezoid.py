"""Integrals by the trapezoidal rule against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.autograd import gradcheck
from tests.each import each
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
Y = rng.standard_normal((2, 3, 4))
NAMES = ["trapezoid", "trapz", "cumulative_trapezoid"]
# y, x, keywords
CASES = {
    "spacing 1": (Y, None, {}),
    "dx": (Y, None, {"dx": 0.3}),
    "dim": (Y, None, {"dx": 2, "dim": 1}),
    "vector of x": (Y, rng.standard_normal(4), {}),
    "vector of x along a dim": (Y, rng.standard_normal(3), {"dim": -2}),
    "x of the same shape": (Y, rng.standard_normal(Y.shape), {"dim": 0}),
    "x of fewer dims": (Y, rng.standard_normal((3, 4)), {"dim": 1}),
    "x that broadcasts": (Y, rng.standard_normal((2, 1, 4)), {}),
    "one sample": (Y[..., :1], None, {}),
    "integers": (np.arange(6).reshape(2, 3), None, {}),
    "integers, integer x": (np.arange(6).reshape(2, 3), np.array([0, 1, 4]), {}),
    "uint8 and float32": (np.arange(3, dtype="uint8"), np.array([0, 1, 4], "float32"), {}),
}


@each("dtype", ["float32", "float64"])
@each("what", CASES)
@each("name", NAMES)
def test_as_pytorch(name, what, dtype):
    y, x, how = CASES[what]
    arrays = [a.astype(dtype) if a.dtype == np.float64 else a for a in (y, x) if a is not None]
    check(getattr(mytorch, name), getattr(torch, name), *arrays, **how)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_samples(shape):
    check(mytorch.trapezoid, torch.trapezoid, np.zeros(shape, "float32"), grad=False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    y = mytorch.tensor(Y[0], requires_grad=True)
    x = mytorch.tensor(np.cumsum(np.abs(Y[1]), 1), requires_grad=True)
    gradcheck(getattr(mytorch, name), [y, x])


@pytest.mark.parametrize("name", NAMES)
def test_errors(name):
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    fails_alike(ours, theirs, np.ones(3, bool), match="must be numbers, got bool")
    fails_alike(ours, theirs, Y, np.ones(3), match="one x for each sample, got 3 for 4")
    fails_alike(ours, theirs, Y, dim=3, match="range|dim")
