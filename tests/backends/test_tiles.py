"""Products of small matrices in registers, of all sizes and strides, as NumPy computes them."""

import numpy as np
import pytest

pytest.importorskip("numba")

from mytorch.backends import tiles  # noqa: E402
from mytorch.backends.jit import kernel  # noqa: E402
from mytorch.backends.lanes import COUNT  # noqa: E402


@kernel
def product(alpha, x, steps, panels, beta, y, k):
    w, out = tiles.matrix_of(panels), (y.ctypes.data, y.strides[0])
    tiles.multiply(alpha, (x.ctypes.data, steps[0], steps[1]), w, beta, out, y.shape[0], k, panels.shape[0])


@kernel
def product_by_tiles(x, panels, y, wide):
    """The same with tiles of four or eight rows, whatever this CPU has."""
    one, zero, k = np.float32(1), np.float32(0), x.shape[1]
    last, a = x.shape[0] - 1, (x.ctypes.data, 4 * k, 4)
    for p in range(0, panels.shape[0], 2 if wide else 1):
        w, out = panels[p].ctypes.data, y.ctypes.data + tiles.LINE * p
        beyond = tiles.LINE * k if p + 1 < panels.shape[0] else 0
        for i in range(0, x.shape[0], 8 if wide else 4):
            if wide:
                tiles.eight_rows(one, a, w, tiles.LINE, beyond, zero, out, y.strides[0], i, last, k)
            else:
                tiles.four_rows(one, a, w, tiles.LINE, zero, out, y.strides[0], i, last, k)


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def whole_panels(rows, n):
    return normal(rows, -(-n // COUNT) * COUNT)


@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (5, 17), (128, 512), (200, 31)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_panels_hold_the_columns_and_zeros_behind_them(shape, is_transposed):
    x = normal(*shape[::-1]).T if is_transposed else normal(*shape)
    panels = tiles.packed(x)
    assert panels.shape == (-(-shape[1] // COUNT), shape[0], COUNT)
    columns = panels.transpose(1, 0, 2).reshape(shape[0], -1)
    assert np.array_equal(columns[:, : shape[1]], x) and not columns[:, shape[1] :].any()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 15])
@pytest.mark.parametrize("k, n", [(0, 16), (1, 5), (33, 16), (64, 40)])
def test_products(rows, k, n):
    x, w, before = normal(rows, k), normal(k, n), whole_panels(rows, n)
    for alpha, beta in ((1, 0), (0.5, 1)):
        want = alpha * (x.astype(np.float64) @ w) + beta * before[:, :n]
        for given in (x, np.asfortranarray(x)):
            y = before.copy() if beta else np.full_like(before, np.nan)  # what isn't read may be anything
            product(np.float32(alpha), given, given.strides, tiles.packed(w), np.float32(beta), y, k)
            np.testing.assert_allclose(y[:, :n], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 6, 8, 13])
def test_both_kinds_of_tiles(wide, rows):
    for columns in (16, 32, 48):
        x, w = normal(rows, 24), normal(24, columns)
        y = np.full((rows, columns), np.nan, np.float32)
        product_by_tiles(x, tiles.packed(w), y, wide)
        np.testing.assert_allclose(y, x @ w, rtol=1e-5, atol=1e-5)
