"""float16 and FMA in kernels, also for a CPU that has no instructions for them."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from mytorch.backends import jit  # noqa: E402
from mytorch.nn.fused_ops.numba import approximations, half  # noqa: E402


@pytest.fixture(params=[False, True])
def has_half(request, monkeypatch):
    if request.param and not jit.has_instructions("f16c"):
        pytest.skip("this CPU has no instructions for float16")
    monkeypatch.setattr(half, "has_instructions", lambda name: request.param)


def test_every_float16(has_half):
    @numba.njit
    def upcast(bits, out):
        for i in range(bits.size):
            out[i] = half.upcast(bits[i])

    bits = np.arange(1 << 16).astype(np.uint16)
    found, want = np.empty(bits.size, np.float32), bits.view(np.float16).astype(np.float32)
    upcast(bits, found)
    np.testing.assert_array_equal(found, want)
    known = ~np.isnan(want)
    assert np.array_equal(np.signbit(found)[known], np.signbit(want)[known])


def test_what_is_rounded_to_float16(has_half):
    @numba.njit
    def downcast(x, out):
        for i in range(x.size):
            out[i] = half.downcast_like(x[i], out[0])

    every = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    every = np.sort(every[np.isfinite(every)].astype(np.float32))
    between = (every[1:] + every[:-1]) / 2  # ties
    infinite = np.array([np.inf, -np.inf, np.nan, 65519.9, 65520, 65536, -3e38, 1e-45, 0, -0.0])
    x = np.concatenate([every, between, infinite]).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf)])
    with np.errstate(over="ignore"):
        found, want = np.empty(x.size, np.uint16), x.astype(np.float16)
    downcast(x, found)
    np.testing.assert_array_equal(found.view(np.float16), want)
    known = ~np.isnan(want)
    assert np.array_equal(np.signbit(found.view(np.float16))[known], np.signbit(want)[known])


def test_a_product_and_a_sum_are_rounded_once(monkeypatch):
    """Without FMA, too, where sums may be regrouped: x y - x y is what the product was rounded by."""
    x, y = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    z = -x * y
    want = (x.astype("float64") * y + z).astype(np.float32)
    for has_fma in {False, jit.has_instructions("fma")}:
        monkeypatch.setattr(approximations, "has_instructions", lambda name, has=has_fma: has)

        @numba.njit(fastmath=jit.FASTMATH)
        def multiply_and_add(x, y, z, out):
            for i in range(x.size):
                out[i] = approximations.fma(x[i], y[i], z[i])

        found = np.empty_like(x)
        multiply_and_add(x, y, z, found)
        np.testing.assert_array_equal(found, want)


def test_the_instructions_that_numba_is_told(monkeypatch):
    assert not jit.has_instructions("of a later CPU")
    for told, has in (("", False), ("+avx2", False), ("+avx2,+avx512f", True), ("-avx512f", False)):
        monkeypatch.setattr(numba.config, "CPU_FEATURES", told)
        assert jit.has_instructions("avx512f") is has
