"""The gradient of an embedding on the CPU, added by rows."""

import numpy as np
import pytest

import mytorch
from mytorch import Tensor, optim
from mytorch.backends import threads
from mytorch.nn import functional as F
from mytorch.nn.fused_ops import registry

pytestmark = pytest.mark.skipif(bool(registry.why_not("cpu")), reason=registry.why_not("cpu"))

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


def expected(index, g, out, padding_idx=None, by_frequency=False):
    wide = out.astype(float)
    for i in np.ndindex(index.shape):
        if index[i] != padding_idx:
            wide[index[i]] += g[i] / ((index == index[i]).sum() if by_frequency else 1)
    return wide


@pytest.mark.parametrize("width", [0, 1, 7, 16, 33, 200])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("padding_idx", [None, 0, 5])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_add_rows(width, dtype, padding_idx, by_frequency):
    from mytorch.nn.fused_ops.numba.embedding import add_rows

    index, g, out = rng.integers(0, 9, (5, 12)).astype(dtype), normal(5, 12, width), normal(11, width)
    want = expected(index, g, out, padding_idx, by_frequency)
    add_rows(index, g, out, padding_idx, by_frequency)
    np.testing.assert_allclose(out, want, 1e-5, 1e-5)
    out[...] = np.nan
    add_rows(index, g, out, padding_idx, by_frequency, beta=0)
    want = expected(index, g, np.zeros_like(out), padding_idx, by_frequency)
    np.testing.assert_allclose(out, want, 1e-5, 1e-5)


def test_any_strides():
    from mytorch.nn.fused_ops.numba.embedding import add_rows

    index, g, out = np.arange(12).reshape(3, 4).T[::-1] % 5, normal(7, 3, 4).T, normal(7, 6).T
    want = expected(index, g, out)
    add_rows(index, g, out)
    np.testing.assert_allclose(out, want, 1e-5, 1e-5)


def test_rows_are_added_in_order_whatever_the_number_of_threads():
    from mytorch.nn.fused_ops.numba.embedding import add_rows

    index, g = rng.integers(0, 3, 500), normal(500, 100)
    want = np.zeros((3, 100), np.float32)
    np.add.at(want, index, g)
    before = threads.get_num_threads()
    try:
        for count in (1, before):
            mytorch.set_num_threads(count)
            out = np.zeros((3, 100), np.float32)
            add_rows(index, g, out)
            np.testing.assert_array_equal(out, want)
    finally:
        mytorch.set_num_threads(before)


def test_no_matrix_of_zeros_beside_the_flat_gradient():
    """A tied weight: the embedding adds its rows to what the product has left in the flat vector."""
    weight = Tensor(normal(50, 32), requires_grad=True)
    optimizer = optim.SGD([weight], lr=0.1)
    tokens = Tensor(rng.integers(0, 50, (4, 6)))

    def loss(fused):
        hidden = F.embedding(tokens, weight, fused=fused)
        return (F.linear(hidden, weight) ** 2).mean()

    grads = []
    for fused in (True, False):
        optimizer.zero_grad()
        loss(fused).backward()
        assert np.shares_memory(weight.grad.numpy(), weight.grad_slot.raw)
        grads.append(weight.grad.numpy().copy())
    np.testing.assert_allclose(*grads, 1e-4, 1e-6)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"scale_grad_by_freq": True}])
def test_a_second_backward_adds(options):
    weight = Tensor(normal(9, 5), requires_grad=True)
    tokens = Tensor(rng.integers(0, 9, (4, 6)))
    F.embedding(tokens, weight, fused=True, **options).sum().backward()
    once = weight.grad.numpy().copy()
    F.embedding(tokens, weight, fused=True, **options).sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), 2 * once, rtol=1e-6)
