"""A kernel's gradient has a graph, too: second gradients are those of the hand-derived variant."""

import numpy as np
import pytest

import mytorch
from mytorch.nn import functional as F
from mytorch.nn.fused_ops import registry
from tests.nn.functional.cases import CASES, declined
from tests.nn.functional.test_parity import call, is_float
from tests.oracle import outputs

pytestmark = pytest.mark.skipif(bool(registry.why_not("cpu")), reason=registry.why_not("cpu"))

APART = {
    "cached_attention", "cached_self_attention",  # have no gradient,
    "dropout",  # and this drops other elements without the kernel: see the last test
}
KERNELS = sorted(name for name in CASES if "cpu" in F.REGISTRY[name].suppliers and name not in APART)


def second_gradients(name, args, kwargs, **choice):
    """The gradients of a function of the gradients: of all floats, and of the incoming ones."""
    rng = np.random.default_rng(5)
    xs = [mytorch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in args]
    floats = [x.requires_grad_() for x, a in zip(xs, args, strict=True) if is_float(a)]
    ys = outputs(call(F, name, kwargs, **choice)(*xs))
    incoming = [mytorch.tensor(rng.standard_normal(y.shape).astype("float32")) for y in ys]
    incoming = [g.requires_grad_() for g in incoming]
    gradients = mytorch.autograd.grad(ys, floats, incoming, create_graph=True)
    weights = [mytorch.tensor(rng.standard_normal(g.shape).astype("float32")) for g in gradients]
    total = sum((g * w).sum() for g, w in zip(gradients, weights, strict=True))
    seconds = mytorch.autograd.grad(total, [*floats, *incoming], allow_unused=True)
    return [None if s is None else s.numpy() for s in seconds]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_s_gradient_has_a_gradient(name):
    args, kwargs = CASES[name][0]
    assert not declined(name, args)
    wants = second_gradients(name, args, kwargs, fused=False)
    for i, (got, want) in enumerate(
        zip(second_gradients(name, args, kwargs, fused=True), wants, strict=True)
    ):
        zero = np.zeros(1, "float32")
        got, want = (zero if a is None or not a.any() else a for a in (got, want))
        np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=f"gradient {i}")


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}], ids=str)
def test_embedding(options):
    """Its vjp holds no floats, but can't be run on Tensors."""
    index = np.array([1, 2, 2, 4])
    table = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    want = second_gradients("embedding", (index, table), options, auto=True)
    got = second_gradients("embedding", (index, table), options, fused=True)
    assert got[0] is None or not got[0].any()  # it is linear in the table
    np.testing.assert_allclose(got[1], want[1], 1e-5, 1e-6)


def test_dropout():
    """y = k x where kept: the gradient of sum(y^3) is 3 k^3 x^2, that of its sum 6 k^3 x."""
    x = mytorch.tensor(np.linspace(0.5, 2, 400, dtype="float32"), requires_grad=True)
    y = F.dropout(x, 0.5, fused=True)
    (g,) = mytorch.autograd.grad((y * y * y).sum(), x, create_graph=True)
    (gg,) = mytorch.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(
        gg.numpy(), np.where(y.detach().numpy() != 0, 48 * x.detach().numpy(), 0), 1e-6
    )
