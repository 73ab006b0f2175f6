"""exp32, sigmoid32 and tanh32 against NumPy's functions in float64, over the whole range of float32."""

import numpy as np
import pytest

pytest.importorskip("numba")

from numba import prange  # noqa: E402

from mytorch.backends.jit import kernel  # noqa: E402
from mytorch.nn.fused_ops.numba.approximations import exp32, sigmoid32, tanh32  # noqa: E402


@kernel
def _exp(x, y):
    for i in prange(x.size):
        y[i] = exp32(x[i])


@kernel
def _sigmoid(x, y):
    for i in prange(x.size):
        y[i] = sigmoid32(x[i])


@kernel
def _tanh(x, y):
    for i in prange(x.size):
        y[i] = tanh32(x[i])


# name: (kernel, the same in float64, largest error in units of the last place)
FUNCTIONS = {
    "exp": (_exp, np.exp, 1.1),
    "sigmoid": (_sigmoid, lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "tanh": (_tanh, np.tanh, 2.4),
}
EVERY = pytest.mark.parametrize("name", FUNCTIONS)
TINY = np.finfo("float32").smallest_normal


def every(step):
    """Each `step`-th of all float32 numbers, NaN and denormal ones among them."""
    return np.arange(0, 2**32, step, dtype=np.int64).astype(np.uint32).view(np.float32)


def around(*numbers):
    """All floats near some numbers."""
    bits = np.asarray(numbers, np.float32).view(np.int32)[:, None] + np.arange(-3000, 3000, dtype=np.int32)
    return bits.view(np.float32).ravel()


def call(function, x):
    y = np.empty_like(x)
    function(x, y)
    return y


def errors(got, want):
    """In units of the last place of the right result; where that is tiny, of the smallest normal number."""
    unit = np.spacing(np.maximum(np.abs(want), TINY).astype(np.float32)).astype(np.float64)
    lost = np.maximum(
        np.abs(got.astype(np.float64) - want) - np.where(np.abs(want) < 1.001 * TINY, TINY, 0), 0
    )
    return lost / unit


@EVERY
@pytest.mark.parametrize("numbers", ["all", "small", "edges"])
@pytest.mark.filterwarnings("ignore")
def test_error(name, numbers):
    function, exact, limit = FUNCTIONS[name]
    x = {
        "all": lambda: every(2053),
        "small": lambda: np.linspace(-20, 20, 2_000_001, dtype=np.float32),
        "edges": lambda: around(
            1, -1, 0.5, 0.3465736, -0.3465736, 1.0397208, 10, -10, 20, -87, 87, -87.33654, 88.72283, -103.97
        ),
    }[numbers]()
    x = x[~np.isnan(x)]
    got, want = call(function, x), exact(x.astype(np.float64))
    most = np.float64(np.finfo(np.float32).max)
    fits = np.abs(want) <= most
    np.testing.assert_array_equal(got[~fits], np.inf)
    found = errors(got[fits], want[fits])
    worst = int(np.argmax(found))
    assert found[worst] <= limit, f"{found[worst]:.2f} units at x = {x[fits][worst]!r}"


SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-39, 3e38, -3e38, 88.8, -88.8, -104]


@EVERY
@pytest.mark.filterwarnings("ignore")
def test_special_values(name):
    function, exact, _ = FUNCTIONS[name]
    for count in (1, 40):  # alone and in a vector register
        x = np.repeat(np.array(SPECIAL, np.float32), count)
        want = exact(x.astype(np.float64))
        want[np.abs(want) > 3.4028235e38] = np.inf
        np.testing.assert_allclose(call(function, x), want.astype(np.float32), rtol=1e-6, atol=TINY)


def test_tanh_is_odd_and_keeps_what_is_small():
    x = every(4099)
    x = x[np.isfinite(x)]
    np.testing.assert_array_equal(call(_tanh, -x), -call(_tanh, x))
    small = x[np.abs(x) < 1e-4]
    np.testing.assert_allclose(call(_tanh, small), small, rtol=1.3e-7, atol=0)
