"""The functions of loops beside NumPy's in float64, over all of float32."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from mytorch.backends import jit  # noqa: E402
from mytorch.compiler.codegen import loop_math  # noqa: E402


def one_plus_tanh(x):
    return 2 / (1 + np.exp(-2 * x))


FUNCTIONS = {
    "exp32": (np.exp, 0.9), "tanh32": (np.tanh, 2.5), "one_plus_tanh32": (one_plus_tanh, 2.5),
    "expm1_32": (np.expm1, 1.7), "log32": (np.log, 0.9), "log1p32": (np.log1p, 1.5),
}
exp32, tanh32, one_plus_tanh32, expm1_32, log32, log1p32 = (getattr(loop_math, name) for name in FUNCTIONS)


def _all_of_them(x, y):
    for i in range(x.size):
        y[0, i], y[1, i], y[2, i] = exp32(x[i]), tanh32(x[i]), one_plus_tanh32(x[i])
        y[3, i], y[4, i], y[5, i] = expm1_32(x[i]), log32(x[i]), log1p32(x[i])


@pytest.fixture(scope="module")
def numbers():
    """Every 20,011th float32, NaN of every kind among them; and some near 0, 1 and where results overflow."""
    x = np.arange(0, 2**32, 20_011, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.linspace(-2, 2, 20_001, dtype=np.float32)
    edges = np.float32([0, -0.0, 1, -1, np.inf, -np.inf, 88.72283, 88.7229, -87.33654, -87.3366, 20, -43, 43])
    return np.concatenate([x, near, near * 50, near * 1e-3, edges])


@pytest.fixture(scope="module")
def results(numbers):
    y = np.empty((len(FUNCTIONS), numbers.size), np.float32)
    numba.njit(_all_of_them, **jit._OPTIONS)(numbers, y)
    return dict(zip(FUNCTIONS, y, strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_some_ulp(name, numbers, results):
    function, most = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        exact = function(numbers.astype(np.float64))
        want = exact.astype(np.float32)
    got, is_number = results[name], np.isfinite(want)
    np.testing.assert_array_equal(got[~is_number], want[~is_number])
    assert np.isfinite(got[is_number]).all()
    is_normal = is_number & (abs(want) >= np.finfo(np.float32).tiny)
    errors = abs(got[is_normal] - exact[is_normal]) / np.spacing(abs(want[is_normal])).astype(np.float64)
    assert errors.max() < most
    rest = is_number & ~is_normal
    np.testing.assert_allclose(got[rest], want[rest], atol=1.2e-38)
