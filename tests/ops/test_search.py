"""Binary search and counting against PyTorch."""

import itertools

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.each import each
from tests.oracle import check, fails_alike, in_both

rng = np.random.default_rng(0)
nan, inf = np.nan, np.inf
VECTOR = np.array([1, 3, 3, 3, 7, 9], "float32")
ROWS = np.sort(rng.integers(0, 9, (2, 3, 5)), -1).astype("float32")
# sequence, values
PAIRS = {
    "vector": (VECTOR, np.array([[0, 1, 2, 3], [3.5, 7, 9, 10]], "float32")),
    "0-d": (VECTOR, np.array(3, "float32")),
    "rows": (ROWS, rng.integers(-1, 10, (2, 3, 4)).astype("float32")),
    "no values": (ROWS, np.zeros((2, 3, 0), "float32")),
    "no boundaries": (VECTOR[:0], VECTOR),
    "one boundary": (VECTOR[:1], VECTOR),
    "integers": (VECTOR.astype("int64"), np.arange(11).reshape(1, 11)),
    "uint8": (VECTOR.astype("uint8"), np.arange(11, dtype="uint8")),
    "half": (VECTOR.astype("float16"), np.arange(11, dtype="float16")),
    "NaN and inf": (np.array([-inf, 0, 2, inf], "float32"), np.array([nan, inf, -inf, 1], "float32")),
    "NaN in the sequence": (np.array([0, 2, nan], "float32"), np.array([nan, 1, 5], "float32")),
    "strided": (VECTOR[::2], VECTOR[::-1]),
    "other dtypes": (VECTOR, np.array([3, 2.9, 3.1])),
    "floats in integers": (np.array([1, 2, 3]), VECTOR / 2),
}
HOW = [{}, {"right": True}, {"side": "right"}, {"side": "left"}, {"out_int32": True, "right": True}]


@pytest.mark.parametrize("how", HOW, ids=str)
@each("what", PAIRS)
def test_searchsorted_and_bucketize(what, how):
    sequence, values = PAIRS[what]
    check(mytorch.searchsorted, torch.searchsorted, sequence, values, **how)
    if sequence.ndim == 1 and "side" not in how:
        check(mytorch.bucketize, torch.bucketize, values, sequence, **how)


@pytest.mark.parametrize("right", [False, True])
def test_a_number(right):
    for value in (3, 3.5, 20):
        for call in (
            lambda t, a, v=value: t.searchsorted(a, v, right=right),
            lambda t, a, v=value: t.bucketize(v, a, right=right),
        ):
            check(lambda a, c=call: c(mytorch, a), lambda a, c=call: c(torch, a), VECTOR)


@pytest.mark.parametrize("shape", [(6,), (2, 3, 5)])
def test_sorter(shape):
    sequence = rng.permutation(int(np.prod(shape))).reshape(shape).astype("float32")
    values = rng.integers(0, 30, (*shape[:-1], 4)).astype("float32")
    order = np.argsort(sequence, -1)
    check(
        lambda s, v, o: mytorch.searchsorted(s, v, sorter=o),
        lambda s, v, o: torch.searchsorted(s, v, sorter=o),
        sequence, values, order,
    )


@pytest.mark.parametrize("n", range(9))
def test_every_place_is_found(n):
    sequence = np.arange(n, dtype="int64") * 2
    values = np.arange(-1, 2 * n + 1)
    for right in (False, True):
        got = mytorch.searchsorted(Tensor(sequence), Tensor(values), right=right)
        np.testing.assert_array_equal(
            got.numpy(), np.searchsorted(sequence, values, "right" if right else "left")
        )


COUNTED = np.array([3, 1, 1, 0, 5, 3, 3])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("minlength", [0, 4, 9])
def test_bincount(dtype, minlength):
    x = COUNTED.astype(dtype)
    check(mytorch.bincount, torch.bincount, x, minlength=minlength)
    check(Tensor.bincount, torch.Tensor.bincount, x[:0], minlength=minlength)
    for weights in ("float32", "float64", "float16", "int64", "bool"):
        w = rng.integers(0, 5, 7).astype(weights)
        check(mytorch.bincount, torch.bincount, x, w, minlength, grad=False)
        check(mytorch.bincount, torch.bincount, x[:0], w[:0], minlength, grad=False)


@pytest.mark.parametrize("how", [(), (5,), (5, -1, 1), (4, 0, 0), (3, 2.5, 2.5), (7, -1, 0.5)], ids=str)
def test_histc(how):
    for x in (rng.standard_normal((4, 9)), np.array([0.0, 1, 2, 3, 4]), np.full(3, 2.5), np.zeros((0, 2))):
        for dtype in ("float32", "float64"):
            check(mytorch.histc, torch.histc, x.astype(dtype), *how, grad=False)
            check(Tensor.histc, torch.Tensor.histc, x.astype(dtype), *how, grad=False)


A, B = np.zeros((2, 3), "float32"), np.zeros((2, 4), "float32")
FAILS = {
    "opposites": (lambda t, a, b: t.searchsorted(a, b, right=True, side="left"), (A, B), "left.*right=True"),
    "side": (lambda t, a, b: t.searchsorted(a, b, side="top"), (A, B), "got 'top'"),
    "shapes": (lambda t, a, b: t.searchsorted(a, b), (A, B[:1]), r"\[2, 3\].*\[1, 4\]"),
    "no dims": (lambda t, a, b: t.searchsorted(a, b), (np.array(1, "float32"), B), r"shape \[\]"),
    "sorter's range": (lambda t, a, b: t.searchsorted(a[0], b, sorter=t.tensor([0, 1, 3])), (A, B), "bounds"),
    "a number in rows": (lambda t, a, b: t.searchsorted(a, 1.0), (A, B), r"a number .* \[2, 3\]"),
    "sorter's shape": (lambda t, a, b: t.searchsorted(a, b, sorter=t.ones(3).long()), (A, B), r"shape \[3\]"),
    "sorter's dtype": (lambda t, a, b: t.searchsorted(a, b, sorter=t.zeros(2, 3).int()), (A, B), "got int32"),
    "boundaries": (lambda t, a, b: t.bucketize(a, b), (A, B), r"1 dimension, got shape \[2, 4\]"),
    "negative": (lambda t, a, b: t.bincount(t.tensor([0, -2])), (A, B), "negative numbers, got -2"),
    "floats": (lambda t, a, b: t.bincount(a[0]), (A, B), "got float32"),
    "matrix": (lambda t, a, b: t.bincount(a.long()), (A, B), r"vector, got shape \[2, 3\]"),
    "minlength": (lambda t, a, b: t.bincount(a[0].long(), minlength=-1), (A, B), "minlength.*-1"),
    "weights": (lambda t, a, b: t.bincount(a[0].long(), b[0]), (A, B), r"weights of shape \[4\].*\[3\]"),
    "bins": (lambda t, a, b: t.histc(a, 0), (A, B), "bins > 0"),
    "range": (lambda t, a, b: t.histc(a, 5, 2, 1), (A, B), "min <= max"),
    "histogram of integers": (lambda t, a, b: t.histc(a.long()), (A, B), "got int64"),
    "infinite": (lambda t, a, b: t.histc(a / 0), (A + 1, B), "not finite"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, arrays, match = FAILS[what]
    fails_alike(lambda *a: call(mytorch, *a), lambda *a: call(torch, *a), *arrays, match=match)


def test_names_of_arguments():
    for call in (
        lambda t, a: t.searchsorted(sorted_sequence=a, input=a),
        lambda t, a: t.bucketize(input=a, boundaries=a),
    ):
        check(lambda a, c=call: c(mytorch, a), lambda a, c=call: c(torch, a), VECTOR)
    assert list(itertools.islice(mytorch.bincount(input=Tensor(COUNTED), weights=None).tolist(), 2)) == [1, 2]


SAMPLES = rng.standard_normal((3, 4))
HISTOGRAMS = {
    "bins": ((5,), {}),
    "one bin": ((1,), {}),
    "range": ((4,), {"range": (-1.0, 0.5)}),
    "density": ((4,), {"density": True}),
    "edges": ((np.array([-1.0, -0.5, 0.1, 2]),), {}),
    "edges, density": ((np.array([-1.0, -0.5, 0.1, 2]),), {"density": True}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", HISTOGRAMS)
def test_histogram(what, dtype, weighted):
    (bins,), how = HISTOGRAMS[what]
    bins = bins.astype(dtype) if isinstance(bins, np.ndarray) else bins
    for x in (SAMPLES.astype(dtype), np.array([], dtype), np.full(3, 2, dtype), np.array([0, 1, nan], dtype)):
        if np.isnan(x).any() and what != "edges":
            continue
        weights = [rng.uniform(0, 1, x.shape).astype(dtype)] if weighted else []

        def call(t, x, *weight, bins=bins):
            edges = t.tensor(bins) if isinstance(bins, np.ndarray) else bins
            return tuple(t.histogram(x, edges, weight=weight[0] if weight else None, **how))

        check(*in_both(call), x, *weights, grad=False)


def test_histogram_refuses():
    ones = np.ones(3, "float32")
    for match, args, how in (
        ("expected float32 or float64, got int64", (np.ones(3, int), 3), {}),
        ("bins must be > 0, got 0", (ones, 0), {}),
        ("finite range", (np.array([1, inf], "float32"), 3), {}),
        ("finite range .* 2.0 to 1.0", (ones, 3), {"range": (2.0, 1.0)}),
        ("edges of float32", (ones, np.ones(3)), {}),
        ("2 or more edges", (ones, np.ones(1, "float32")), {}),
        ("edges of float32 in a vector", (ones, np.ones((2, 2), "float32")), {}),
    ):
        fails_alike(mytorch.histogram, torch.histogram, *args, match=match, **how)
    with pytest.raises(RuntimeError, match="expected a weight of float32"):
        mytorch.histogram(Tensor(ones), 3, weight=mytorch.ones(2))
