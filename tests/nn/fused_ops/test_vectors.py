"""Passes over long raw vectors: norm, scaling, casts that look for inf; with kernels and in plain NumPy."""

import numpy as np
import pytest

import mytorch
from mytorch import use_fused
from mytorch.backends import threads
from mytorch.nn.fused_ops import norm, registry
from mytorch.nn.fused_ops.cast import cast_and_check, unscale_and_check
from mytorch.nn.fused_ops.norm import euclidean_norm, scale

SIZES = [0, 1, 63, 4097, 16384 * 3 + 5]


@pytest.fixture(params=[True, False], ids=["kernel", "numpy"], autouse=True)
def kernels(request, monkeypatch):
    """With and without kernels; with them, short vectors use them, too."""
    if request.param and registry.why_not("cpu"):
        pytest.skip(registry.why_not("cpu"))
    monkeypatch.setattr(norm, "SHORTEST", 0)
    with use_fused(request.param):
        yield request.param


def vector(size, dtype="float32", scale=1.0):
    return (scale * np.random.default_rng(size).standard_normal(size)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_norm(size, dtype):
    x = vector(size, dtype, 30)
    got = euclidean_norm(x)
    assert got.dtype == ("float64" if dtype == "float64" else "float32")
    np.testing.assert_allclose(
        got, np.linalg.norm(x.astype(float)), rtol=1e-12 if dtype == "float64" else 1e-6
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_norm_of_what_is_not_finite(bad):
    x = vector(20000)
    x[12345] = bad
    with np.errstate(over="ignore"):
        np.testing.assert_equal(euclidean_norm(x), np.float32(np.nan if np.isnan(bad) else np.inf))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("factor", [0.25, -3.0, 0.0, np.inf, np.nan])
def test_scale(factor, dtype):
    for size in SIZES:
        x = vector(size, dtype)
        with np.errstate(all="ignore"):
            want = x * np.asarray(factor, dtype)
            scale(x, factor)
        np.testing.assert_array_equal(x, want)


def test_scale_of_an_array_of_any_shape_and_strides():
    for x in (vector(60).reshape(3, 4, 5), vector(60).reshape(6, 10).T, vector(60)[::-2]):
        want = x * np.float32(3)
        scale(x, 3.0)
        np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("source", ["float32", "float16"])
@pytest.mark.parametrize("out", ["float32", "float16"])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf, 65519.0, 65521.0])
def test_cast_and_check(source, out, bad):
    for size in SIZES[1:]:
        x = vector(size, source, 100)
        if bad is not None:
            with np.errstate(over="ignore"):
                x[size // 2] = bad
        before, result, found_inf = x.copy(), np.empty(size, out), np.zeros((), np.float32)
        cast_and_check(x, result, found_inf)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(result, x.astype(out))
        np.testing.assert_array_equal(x, before)
        assert found_inf == (not np.isfinite(result).all())
        found_inf[...] = 1
        cast_and_check(np.zeros_like(x), result, found_inf)
        assert found_inf == 1  # it is never taken back


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_unscale_and_check(dtype, bad):
    for size in SIZES[1:]:
        x, found_inf = vector(size, dtype), np.zeros(1, np.float32)
        if bad is not None:
            x[-1] = bad
        want = x * np.asarray(0.125, dtype)
        unscale_and_check(x, np.array([0.125], np.float32), found_inf)
        np.testing.assert_array_equal(x, want)
        assert found_inf[0] == (bad is not None)


def test_scaling_up_may_make_them_infinite():
    x, found_inf = np.array([1, 60000], np.float16), np.zeros(1, np.float32)
    unscale_and_check(x, np.array(2, np.float32), found_inf)
    assert x.tolist() == [2, np.inf] and found_inf == 1


def test_nothing_is_finite():
    found_inf = np.zeros(1, np.float32)
    cast_and_check(np.zeros(0, np.float32), np.zeros(0, np.float16), found_inf)
    unscale_and_check(np.zeros(0, np.float32), np.ones(1, np.float32), found_inf)
    assert found_inf == 0


def test_wrong_arrays_are_refused():
    x, half, found_inf = vector(6), np.zeros(6, np.float16), np.zeros(1, np.float32)
    wrong = [
        (lambda: cast_and_check(x, half[:5], found_inf), "one length"),
        (lambda: cast_and_check(x.reshape(2, 3), half.reshape(2, 3), found_inf), "vectors"),
        (lambda: cast_and_check(x[::2], half[::2], found_inf), "contiguous"),
        (lambda: cast_and_check(x.astype(float), half, found_inf), "float64"),
        (lambda: cast_and_check(x, half, np.zeros(2, np.float32)), "found_inf"),
        (lambda: cast_and_check(x, half, np.zeros(1)), "found_inf is float64"),
        (lambda: unscale_and_check(x, np.ones(2, np.float32), found_inf), "inv_scale has shape"),
        (lambda: unscale_and_check(x.astype(int), np.ones(1, np.float32), found_inf), "int64"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()


def test_the_number_of_threads_changes_nothing(kernels):
    if not kernels:
        pytest.skip("NumPy's sums are as they are")
    x, before, found = vector(1000003), threads.get_num_threads(), []
    try:
        for count in (1, before):
            mytorch.set_num_threads(count)
            found.append(euclidean_norm(x))
    finally:
        mytorch.set_num_threads(before)
    assert found[0] == found[1]
