"""float16 in kernels, also for a CPU that has no instructions for it."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from mytorch.backends import jit  # noqa: E402
from mytorch.nn.fused_ops.numba import half  # noqa: E402


@pytest.mark.parametrize("has_half", [False, True])
def test_every_float16(has_half, monkeypatch):
    if has_half and not half._has_half():
        pytest.skip("this CPU has no instructions for float16")
    monkeypatch.setattr(half, "_has_half", lambda: has_half)

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


def test_the_instructions_that_numba_is_told(monkeypatch):
    assert not jit.has_instructions("of a later CPU")
    for told, has in (("", False), ("+avx2", False), ("+avx2,+avx512f", True), ("-avx512f", False)):
        monkeypatch.setattr(numba.config, "CPU_FEATURES", told)
        assert jit.has_instructions("avx512f") is has
