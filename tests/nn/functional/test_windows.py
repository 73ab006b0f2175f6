"""Sliding windows: sizes as PyTorch's, the view, its adjoint, and how arguments are read."""

import itertools

import numpy as np
import pytest
import torch

from mytorch.nn.functional import windows as w

rng = np.random.default_rng(0)


def test_output_size_is_pytorch_s():
    sizes = itertools.product(range(1, 9), (1, 2, 3), (1, 2, 3, 5), (0, 1), (1, 2), (False, True))
    compared = 0
    for n, kernel, stride, padding, dilation, ceil_mode in sizes:
        if padding > kernel // 2:  # refused by PyTorch's pooling
            continue
        got = w.output_size(n, kernel, stride, padding, dilation, ceil_mode)
        try:
            pooled = torch.nn.functional.max_pool1d(
                torch.zeros(1, 1, n), kernel, stride, padding, dilation, ceil_mode
            )
        except RuntimeError:
            assert got < 1
            continue
        assert got == pooled.shape[-1], (n, kernel, stride, padding, dilation, ceil_mode)
        compared += 1
    assert compared > 400


GEOMETRIES = [  # size, kernel, stride, dilation
    ((9,), (3,), (2,), (1,)), ((9, 8), (3, 2), (1, 1), (1, 1)), ((9, 8), (3, 2), (2, 3), (2, 1)),
    ((5, 4, 6), (2, 1, 3), (1, 2, 2), (3, 1, 1)), ((4, 4), (4, 4), (1, 1), (1, 1)), ((6,), (1,), (4,), (1,)),
]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), GEOMETRIES)
def test_windows_hold_what_their_places_say(size, kernel, stride, dilation):
    x = rng.standard_normal((2, 3, *size))
    view = w.windows(x, kernel, stride, dilation)
    out = view.shape[2 : 2 + len(size)]
    assert out == tuple(map(w.output_size, size, kernel, stride, [0] * len(size), dilation))
    assert view.shape == (2, 3, *out, *kernel)
    assert np.shares_memory(view, x) and not view.flags.writeable
    for i in np.ndindex(*out):
        for j in np.ndindex(*kernel):
            place = tuple(np.multiply(i, stride) + np.multiply(j, dilation))
            np.testing.assert_array_equal(view[(..., *i, *j)], x[(..., *place)])


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), GEOMETRIES)
def test_overlap_add_is_the_adjoint(size, kernel, stride, dilation):
    x = rng.standard_normal((2, 3, *size))
    view = w.windows(x, kernel, stride, dilation)
    v = rng.standard_normal(view.shape)
    back = w.overlap_add(v, size, stride, dilation)
    assert back.shape == x.shape
    np.testing.assert_allclose((view * v).sum(), (x * back).sum(), rtol=1e-12)


def test_what_no_window_reaches_stays_zero():
    np.testing.assert_array_equal(w.overlap_add(np.ones((2, 1)), (5,), (3,), (1,)), [1, 0, 0, 1, 0])


def test_padding_and_its_inner_part():
    x = np.arange(6.0).reshape(1, 2, 3)
    y = w.padded(x, [(1, 0), (0, 2)], -7)
    np.testing.assert_array_equal(y, np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=-7))
    np.testing.assert_array_equal(w.inner(y, [(1, 0), (0, 2)]), x)
    assert w.padded(x, [(0, 0), (0, 0)]) is x


def test_tuples():
    assert w.ntuple(2, 3, "f(): x") == (2, 2, 2) == w.ntuple([2], 3, "f(): x")
    assert w.ntuple((1, np.int64(2)), 2, "f(): x") == (1, 2)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.5, TypeError, r"f\(\): x must be an int or 2 ints, got 1.5"), ("12", TypeError, "got '12'"),
        (True, TypeError, "got True"), ((1, None), TypeError, r"got \(1, None\)"),
        ((1, 2, 3), RuntimeError, r"got \(1, 2, 3\)"), ((), RuntimeError, r"got \(\)"),
        ((1, 0), RuntimeError, r"f\(\): x must be at least 1, got \(1, 0\)"),
    ],
)
def test_what_is_no_tuple(value, error, message):
    with pytest.raises(error, match=message):
        w.ntuple(value, 2, "f(): x", 1)
