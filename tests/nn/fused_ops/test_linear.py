"""The kernels of linear layers, beyond what all kernels are tested for."""

import numpy as np
import pytest

import mytorch
from mytorch.backends import gemm
from mytorch.nn import functional as F
from mytorch.nn.fused_ops.registry import why_not

if why_not("cpu"):
    pytest.skip(why_not("cpu"), allow_module_level=True)

rng = np.random.default_rng(0)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("function", [F.linear, F.linear_activation])
def test_each_gradient_that_comes_in_counts(function, fused):
    x, w, b = (mytorch.Tensor(rng.normal(size=s).astype("float32"), requires_grad=True)
               for s in ((5, 4), (3, 4), (3,)))
    y = function(x, w, b, fused=fused)
    g = mytorch.ones(5, 3)
    gradients = g, 2 * g, g
    found = [mytorch.autograd.grad(y, (x, w, b), gradient, retain_graph=True) for gradient in gradients]
    for one, two, again in zip(*found, strict=True):
        np.testing.assert_array_equal(2 * one.numpy(), two.numpy())
        np.testing.assert_array_equal(one.numpy(), again.numpy())
    g.mul_(2)
    for two, also in zip(found[1], mytorch.autograd.grad(y, (x, w, b), g), strict=True):
        np.testing.assert_array_equal(two.numpy(), also.numpy())


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_activation_needs_no_openblas(activation, has_bias, monkeypatch):
    """NumPy on a Mac has none."""
    monkeypatch.setattr(gemm, "is_available", lambda: False)
    x, w, b = (mytorch.Tensor(rng.normal(size=s).astype("float32"), requires_grad=True)
               for s in ((5, 7, 40), (30, 40), (30,)))
    found = []
    for fused in (True, False):
        y = F.linear_activation(x, w, b if has_bias else None, activation, fused=fused)
        grads = mytorch.autograd.grad((y * y).sum(), (x, w, b) if has_bias else (x, w))
        found.append([y, *grads])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), expected.detach().numpy(), 1e-4, 1e-4)
