"""The kernels of linear layers, beyond what all kernels are tested for."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.fused_ops.registry import why_not

if why_not("cpu"):
    pytest.skip(why_not("cpu"), allow_module_level=True)

rng = np.random.default_rng(0)


@pytest.mark.parametrize("function", [F.linear, F.linear_activation])
def test_each_gradient_that_comes_in_counts(function):
    x, w, b = (mytorch.Tensor(rng.normal(size=s).astype("float32"), requires_grad=True)
               for s in ((5, 4), (3, 4), (3,)))  # fmt: skip
    y = function(x, w, b, fused=True)
    g = mytorch.ones(5, 3)
    found = [mytorch.autograd.grad(y, (x, w, b), factor * g, retain_graph=True) for factor in (1, 2, 1)]
    for one, two, again in zip(*found, strict=True):
        np.testing.assert_array_equal(2 * one.numpy(), two.numpy())
        np.testing.assert_array_equal(one.numpy(), again.numpy())
