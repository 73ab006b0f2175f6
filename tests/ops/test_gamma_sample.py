"""The derivative of a gamma distribution's sample by its parameter."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.ops.gamma_sample import standard_gamma, standard_gamma_grad

rng = np.random.default_rng(0)
A = 10 ** rng.uniform(-2, 4, 2000)
X = np.maximum(rng.standard_gamma(A), 1e-100)
EDGES = [(2, 0), (1, 1e-30), (0.01, 1e-30), (5, 50), (3, 2), (1e-3, 4), (1e4, 1.2e4), (9, 0.1)]


def test_as_pytorch():
    """Its approximations have three to four digits, and two far in a tail (see EDGES)."""
    for dtype, limit in (("float64", 1e-3), ("float32", 3e-3)):
        a, x = A.astype(dtype), X.astype(dtype)
        x = np.maximum(x, np.finfo(dtype).tiny)
        got = standard_gamma_grad(mytorch.tensor(a), mytorch.tensor(x))
        want = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy(), want, limit)
        assert np.median(np.abs(got.numpy() / want - 1)) < 1e-5


def test_as_the_difference_of_the_distribution_function():
    a, x = (torch.tensor(z[A < 1e3]) for z in (A, X))
    h, p = 1e-4 * a, torch.special.gammainc
    near, far = (p(a + k * h, x) - p(a - k * h, x) for k in (1, 2))
    slope = (8 * near - far) / (12 * h)
    want = -slope / ((a - 1) * x.log() - x - a.lgamma()).exp()
    got = standard_gamma_grad(mytorch.tensor(a.numpy()), mytorch.tensor(x.numpy()))
    np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-8)


@pytest.mark.parametrize(("a", "x"), EDGES)
def test_edges(a, x):
    a, x = np.array([float(a)]), np.array([float(x)])
    got = standard_gamma_grad(mytorch.tensor(a), mytorch.tensor(x)).item()
    want = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).item()
    assert got == pytest.approx(want, rel=2e-2, abs=1e-300)


@pytest.mark.parametrize(("a", "x"), [(100.0, 500.0), (1e4, 1.5e4), (1e6, 2e6)])
def test_far_above_by_many_steps(a, x):
    """The integral whose exponent falls by x - a and more a unit, in steps of a thousandth of its width."""
    v = np.linspace(0, 40 / (x - a), 40_001)
    heights = np.exp(a * v - x * np.expm1(v)) * (v + np.log(x) - torch.tensor(a).double().digamma().item())
    got = standard_gamma_grad(mytorch.tensor([a], dtype="float64"), mytorch.tensor([x], dtype="float64"))
    assert got.item() == pytest.approx(x * np.trapezoid(heights, v), rel=1e-6)


def test_gradient():
    a = mytorch.tensor([0.5, 3.0, 40.0], dtype="float64", requires_grad=True)
    x = mytorch.tensor([0.2, 2.5, 44.0], dtype="float64")
    y = standard_gamma(a, x)
    y.backward(mytorch.tensor([1.0, 2.0, 3.0], dtype="float64"))
    want = standard_gamma_grad(a.detach(), x) * mytorch.tensor([1.0, 2.0, 3.0])
    assert a.grad.tolist() == want.tolist()
    half = standard_gamma_grad(a.detach().half(), x.half())
    assert half.dtype == "float16"
    np.testing.assert_allclose(half.float().numpy(), standard_gamma_grad(a.detach(), x).numpy(), 1e-2)
