"""The error function and its relatives against PyTorch and Python's math module."""

import math

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.oracle import check

EXTREME = [0.0, -0.0, 1e-30, 30, 100, -100, 1e30, np.inf, -np.inf, np.nan]
WIDE = np.concatenate([np.linspace(-7, 7, 4001), EXTREME])
INSIDE = np.concatenate([np.linspace(-0.999, 0.999, 2001), 1 - np.logspace(-1, -6, 50), [0.0, -0.0, 1e-30]])
NAMES = ["erf", "erfc"]


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_to_the_last_digits(name):
    x = WIDE[np.isfinite(WIDE)]
    want = np.array([getattr(math, name)(v) for v in x])
    np.testing.assert_allclose(getattr(mytorch, name)(Tensor(x)).numpy(), want, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision(name):
    x = WIDE.astype("float32")
    want = np.array([getattr(math, name)(float(v)) for v in x])
    np.testing.assert_allclose(getattr(mytorch, name)(Tensor(x)).numpy(), want, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(4004,), (154, 26), ()], ids=str)
def test_against_pytorch(name, dtype, shape):
    x = WIDE[:4004].astype(dtype).reshape(shape or 4004)
    x = x if shape else x[2100]
    rtol = {"float64": None, "float16": 2e-3}.get(dtype, 1e-5)
    check(getattr(mytorch, name), getattr(torch, name), np.asarray(x), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_erfinv(dtype):
    x = INSIDE.astype(dtype)
    rtol = 1e-9 if dtype == "float64" else 3e-5
    check(mytorch.erfinv, torch.erfinv, x, rtol=rtol)
    outside = np.array([1, -1, 1.5, -2, np.nan], dtype)
    check(mytorch.erfinv, torch.erfinv, outside, grad=False)
    y = mytorch.erfinv(Tensor(x.astype("float64")))
    np.testing.assert_allclose(y.erf().numpy(), x.astype("float64"), rtol=1e-14, atol=1e-15)


def test_large_inputs_are_worked_on_in_blocks():
    x = np.tile(WIDE[:4001], 10)
    for name in (*NAMES, "erfinv"):
        function = getattr(mytorch, name)
        blocks = function(Tensor(x.reshape(10, -1)[:, ::2])).numpy()
        np.testing.assert_array_equal(blocks[7], function(Tensor(x[:4001:2])).numpy())


def test_methods():
    x = Tensor(np.array([0.3, -0.2]))
    np.testing.assert_array_equal(x.erf().numpy(), mytorch.erf(x).numpy())
    np.testing.assert_array_equal(x.clone().erfc_().numpy(), mytorch.erfc(x).numpy())
    np.testing.assert_array_equal(x.erfinv().numpy(), mytorch.erfinv(x).numpy())
