"""The gamma function against PyTorch and at values that are known."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch.autograd import gradcheck
from mytorch.ops.gamma import polygamma
from tests.oracle import check

X = np.array([1e-300, 1e-5, 0.1, 0.5, 1, 1.5, 2, 2.5, 9.99, 10, 33.3, 1e3, 1e10, -0.5, -1.7, -9.3, -20.6])
SPECIAL = np.array([0.0, -0.0, -1, -2, np.inf, -np.inf, np.nan])
EULER = 0.57721566490153286061


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_as_pytorch(name, dtype):
    x = X[(1e-30 if dtype != "float64" else -100) <= X].astype(dtype)
    x = x[x > 0] if dtype == "int64" else x
    # PyTorch's trigamma, the second derivative, has 9 digits, and 5 in float32
    ours, theirs, single = getattr(mytorch, name), getattr(torch, name), dtype != "float64"
    check(ours, theirs, x, grad=False, rtol=1e-5 if single else 1e-14)
    check(ours, theirs, x, rtol=5e-5 if single else 5e-9)
    special = SPECIAL if dtype == "float64" else SPECIAL.astype("float32")
    special = special[:6] if name == "lgamma" else np.delete(special, 5)  # PyTorch: -inf
    check(getattr(mytorch, name), getattr(torch, name), special, grad=False)


def test_known_values():
    """Handbook of Mathematical Functions, 6.1.8, 6.3.2, 6.3.3, 6.4.2, 6.4.4."""
    x = mytorch.tensor([1.0, 0.5], dtype="float64")
    zeta3 = 1.2020569031595942854
    for got, want in (
        (x.lgamma(), [0, math.log(math.pi) / 2]), (x.digamma(), [-EULER, -EULER - 2 * math.log(2)]),
        (polygamma(x, 1), [math.pi**2 / 6, math.pi**2 / 2]), (polygamma(x, 2), [-2 * zeta3, -14 * zeta3]),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-14, atol=5e-15)


def test_gradients():
    x = mytorch.tensor([0.3, 1.0, 4.2, 15.0, -1.4], requires_grad=True, dtype="float64")
    for function in (mytorch.lgamma, mytorch.digamma, lambda x: polygamma(x, 1)):
        gradcheck(function, x)
    gradcheck(mytorch.func.grad(lambda x: mytorch.lgamma(x).sum()), x)
