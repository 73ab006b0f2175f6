"""Sums of products, on the CPU and on a GPU, where they can be captured in a graph."""

import numpy as np
import pytest

import mytorch
from mytorch import cuda
from mytorch.backends.blas import dots
from mytorch.core.tensor import from_raw

CASES = {"ij->i": (3, 4), "ncl->c": (2, 3, 4), "...ld->...l": (2, 1, 3, 4)}


@pytest.mark.parametrize("sums", CASES)
def test_dots(sums, device):
    x, y = (np.random.default_rng(i).standard_normal(CASES[sums]).astype("float32") for i in range(2))
    made = dots(sums, *(mytorch.tensor(a, device=device).data._array for a in (x, y)))
    inputs = sums.split("->")[0]
    want = np.einsum(f"{inputs},{sums}", x.astype("float64"), y.astype("float64"))
    np.testing.assert_allclose(from_raw(made).cpu().numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_graph_has_them(fake_cuda):
    x = mytorch.ones(3, 4, device="cuda:0")
    made = cuda.CUDAGraph()
    with cuda.graph(made):
        y = from_raw(dots("ij->i", x.data._array, x.data._array))
    x.fill_(2)
    made.replay()
    assert y.tolist() == [16, 16, 16]


def test_a_graph_has_none_of_cupy_s_products(fake_cuda):
    x = mytorch.ones(3, 4, device="cuda:0").data._array
    for product in (lambda: np.einsum("ij,ij->i", x, x), lambda: np.matmul(x, x.T), lambda: np.dot(x, x.T)):
        with pytest.raises(NotImplementedError, match="during stream capture"), cuda.graph(cuda.CUDAGraph()):
            product()
