"""Products on the pool of threads: every layout that BLAS can read, and those that it can't."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch.backends import blas, gemm, jit, threads  # noqa: F401 - jit starts the pool

rng = np.random.default_rng(0)
SIZES = st.sampled_from([0, 1, 2, 15, 17, 33, 64, 130])

LAYOUTS = {
    "plain": lambda m, n: normal(m, n),
    "transposed": lambda m, n: normal(n, m).T,
    "rows of a wider one": lambda m, n: normal(m, n + 5)[:, 2 : n + 2],
    "columns of a wider one": lambda m, n: normal(n, m + 3).T[1 : m + 1],
    "every other column": lambda m, n: normal(m, 2 * n)[:, ::2],
    "backwards": lambda m, n: normal(m, n)[::-1],
    "one row, many times": lambda m, n: np.broadcast_to(normal(1, n), (m, n)),
    "one number, many times": lambda m, n: np.broadcast_to(normal(1, 1), (m, n)),
}
OUTPUTS = ["plain", "rows of a wider one"]


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Even the smallest product goes to the threads."""
    monkeypatch.setattr(gemm, "SERIAL", 0)


@settings(deadline=None, max_examples=300)
@given(
    SIZES, SIZES, SIZES, st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS)),
    st.sampled_from(OUTPUTS), st.booleans(),
)
def test_matrix_product(m, n, k, x_layout, y_layout, layout, add):
    x, y, out = LAYOUTS[x_layout](m, k), LAYOUTS[y_layout](k, n), LAYOUTS[layout](m, n)
    want = x.astype(float) @ y.astype(float) + (out if add else 0)
    if not add:
        out.fill(np.nan)  # what was there must not matter
    gemm.matrix_product(x, y, out, int(add))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [1, 15, 16, 17, 100])
def test_one_row(k):
    """Rows of the matrix are read by fours, and by 16 columns; also with a bias."""
    for n in (1, 2, 3, 5, 31, 32, 33, 66):
        x, w, bias, wide = normal(1, k), normal(n, k), normal(n), np.ones(n + 2, np.float32)
        want = (x.astype(float) @ w.T.astype(float))[0]
        gemm.matrix_product(x, w.T, wide[None, 1:-1])
        np.testing.assert_allclose(wide[1:-1], want, rtol=1e-5, atol=1e-5)
        assert wide[0] == wide[-1] == 1
        y = mytorch.nn.functional.linear(*map(mytorch.from_numpy, (x, w, bias)), fused=True)
        np.testing.assert_allclose(y.numpy()[0], want + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_lies_beside_the_result_is_left_alone(size):
    wide = np.ones((70, 90), np.float32)
    gemm.matrix_product(normal(70, 8), normal(8, 50), wide[:, 20:70])
    assert (wide[:, :20] == 1).all() and (wide[:, 70:] == 1).all()


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([((3,), (3,)), ((2, 1), (4,)), ((1,), (5,)), ((2, 3), (2, 3)), ((), (3,)), ((0,), (1,))]),
    st.sampled_from([1, 2, 17]), st.sampled_from([1, 5, 33]), st.sampled_from([0, 1, 9]),
    st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS)), st.booleans(),
)
def test_stacked_product(batches, m, n, k, x_layout, y_layout, swapped):
    x, y = (
        np.stack([layout(*size) for _ in range(int(np.prod(batch)))]).reshape(*batch, *size)
        if np.prod(batch) else np.empty((*batch, *size), np.float32)
        for batch, size, layout in zip(
            batches, ((m, k), (k, n)), (LAYOUTS[x_layout], LAYOUTS[y_layout]), strict=True
        )
    )
    if swapped:
        x = np.swapaxes(np.swapaxes(x, -1, -2).copy(), -1, -2)
    np.testing.assert_allclose(gemm.stacked_product(x, y), x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (300, 129), (2, 4096)])
def test_column_sums(shape):
    x = normal(*shape)
    np.testing.assert_allclose(blas.column_sums(x), x.sum(0, dtype=float), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(blas.column_sums(x[:, ::-1]), x[:, ::-1].sum(0, dtype=float), atol=1e-4)


def test_openblas_has_its_threads_back_afterwards():
    from mytorch.backends.openblas import openblas

    library = openblas()
    before = library.get_num_threads()
    library.set_num_threads(3)
    try:
        gemm.matrix_product(normal(64, 64), normal(64, 64), np.empty((64, 64), np.float32))
        gemm.stacked_product(normal(3, 64, 64), normal(3, 64, 64))
        assert library.get_num_threads() == 3
    finally:
        library.set_num_threads(before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("beta", [0, 1])
def test_add_product(dtype, beta):
    x, y = normal(20, 30).astype(dtype), normal(30, 10).astype(dtype)
    out = normal(20, 10).astype(dtype) if beta else np.full((20, 10), np.nan, dtype)
    want = x.astype(float) @ y.astype(float) + (out.astype(float) if beta else 0)
    blas.add_product(x, y, out, beta)
    np.testing.assert_allclose(
        out, want, **({"rtol": 1e-2, "atol": 2e-2} if dtype == np.float16 else {"rtol": 1e-5, "atol": 1e-5})
    )


def test_matmul_of_tensors_runs_on_the_pool(monkeypatch):
    called = []
    true = gemm.matrix_product
    monkeypatch.setattr(gemm, "matrix_product", lambda *args: called.append(args[2].shape) or true(*args))
    x = mytorch.Tensor(normal(4, 70, 80), requires_grad=True)
    w = mytorch.Tensor(normal(80, 90), requires_grad=True)
    (x @ w).sum().backward()
    assert (280, 90) in called and (80, 90) in called
    np.testing.assert_allclose(w.grad.numpy()[:, 0], x.detach().numpy().sum((0, 1)), rtol=1e-4)
