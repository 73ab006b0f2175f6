"""The interpreter itself, which has to give what a GPU gives; test_kernels.py runs it in its own process."""

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from mytorch.nn.fused_ops.triton.chips import CHIPS
from mytorch.nn.fused_ops.triton.launch import chip, launch
from mytorch.nn.fused_ops.triton.tune import tuned
from tests.triton import interpreter

interpreter.install()

BFLOAT16 = ml_dtypes.bfloat16
SPECIAL = [
    0,
    -0.0,
    1.99999,
    0.99999,
    1 + 2**-8,
    1 + 3 * 2**-8,
    3.4e38,
    1e-40,
    -1e-40,
    np.inf,
    -np.inf,
    np.nan,
]


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n).to(y_ptr.dtype.element_ty), mask=i < n)


@pytest.mark.parametrize(("source", "target"), [("float32", BFLOAT16), (BFLOAT16, "float32")])
def test_bfloat16_is_rounded_to_nearest(source, target):
    random = np.random.default_rng(0).standard_normal(500).astype("float32")
    x = np.concatenate([np.array(SPECIAL, "float32"), random]).astype(source)
    y = np.empty(x.shape, target)
    launch(copy, (1,), x, y, x.size, BLOCK=512)
    np.testing.assert_array_equal(y.astype("float32"), x.astype(target).astype("float32"))


@triton.jit
def product(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)[:, None]
    j = tl.arange(0, N)[None, :]
    tl.store(out_ptr + i * N + j, tl.dot(tl.load(x_ptr + i * N + j), tl.load(y_ptr + i * N + j)))


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16, "float32"])
def test_products(dtype):
    x, y = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(dtype)
    out = np.empty((32, 32), "float32")
    launch(product, (1,), x, y, out, N=32)
    np.testing.assert_allclose(out, x.astype("float64") @ y.astype("float64"), rtol=1e-5, atol=1e-5)


@triton.jit
def extremes(x_ptr, y_ptr, larger_ptr, smaller_ptr, most_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(larger_ptr + i, tl.maximum(x, y))
    tl.store(smaller_ptr + i, tl.minimum(x, y))
    tl.store(most_ptr, tl.max(x, axis=0))


def test_maximum_and_minimum_drop_nan():
    x, y = np.array([[1, np.nan, 2, np.nan], [2, 3, np.nan, np.nan]], "float32")
    larger, smaller, most = np.empty(4, "float32"), np.empty(4, "float32"), np.empty(1, "float32")
    launch(extremes, (1,), x, y, larger, smaller, most, BLOCK=4)
    np.testing.assert_array_equal(larger, [2, 3, 2, np.nan])
    np.testing.assert_array_equal(smaller, [1, 3, 2, np.nan])
    np.testing.assert_array_equal(most, [2])


@triton.jit
def count(out_ptr, n, step):
    total = 0
    for i in range(n, 3 * n, step):
        total += i
    tl.store(out_ptr, total)


def test_numbers_are_the_ends_of_ranges():
    out = np.zeros(1, "int32")
    launch(count, (1,), out, 5, 2)
    assert out[0] == sum(range(5, 15, 2))


@triton.jit
def touch(x_ptr, y_ptr, at, n, HOW: tl.constexpr):
    i = at + tl.arange(0, 4)
    if HOW == "load":
        tl.store(y_ptr + tl.arange(0, 4), tl.load(x_ptr + i, mask=i < n))
    if HOW == "store":
        tl.store(x_ptr + i, i.to(tl.float32), mask=i < n)
    if HOW == "add":
        tl.atomic_add(x_ptr + i, i.to(tl.float32), mask=i < n)
    if HOW == "swap":
        tl.atomic_cas(x_ptr + at, 0.0, 1.0)


@pytest.mark.parametrize("how", ["load", "store", "add", "swap"])
@pytest.mark.parametrize(("at", "n", "element"), [(7, 11, 10), (10, 99, 10), (-1, 10, -1)])
def test_nothing_outside_the_arrays_is_touched(how, at, n, element):
    memory, y = np.zeros(40, "float32"), np.zeros(4, "float32")
    x = memory[10:20]
    for inside in ((0, 10), (6, 10), (8, 10), (0, 4)):
        launch(touch, (1,), x, y, *inside, HOW=how)
    launch(
        copy, (1,), memory, y, 4, BLOCK=4
    )  # what belonged to an earlier launch doesn't belong to a later one
    kept = memory.copy()
    with pytest.raises(InterpreterError, match=rf"nearest is x_ptr, element {element} of 10"):
        launch(touch, (1,), x, y, element if how == "swap" else at, n, HOW=how)
    np.testing.assert_array_equal(memory, kept)


def test_views_are_arrays_of_their_own():
    x = np.arange(40, dtype="float32").reshape(4, 10)
    y = np.empty(3, "float32")
    launch(copy, (1,), x[1, ::-1][::-1][4:7], y, 3, BLOCK=4)
    np.testing.assert_array_equal(y, [14, 15, 16])


def test_a_tuned_kernel_takes_its_first_configuration():
    seen = []
    y = np.empty(3, "float32")
    kernel = tuned([{"BLOCK": 4}, {"BLOCK": 2}])(copy)
    launch(kernel, lambda meta: seen.append(meta) or (1,), np.ones(3, "float32"), y, 3)
    assert seen == [{"BLOCK": 4}] and chip() == CHIPS[90]
    np.testing.assert_array_equal(y, 1)


def test_a_grid_of_none():
    y = np.zeros(3, "float32")
    launch(copy, (0, 3), np.ones(3, "float32"), y, 3, BLOCK=4)
    np.testing.assert_array_equal(y, 0)
