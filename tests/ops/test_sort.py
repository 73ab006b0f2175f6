"""sort, argsort and topk against PyTorch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck, gradgradcheck
from tests.each import each
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
nan, inf = np.nan, np.inf


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


INPUTS = {
    "3-d": normal(2, 3, 4), "2-d": normal(5, 6), "1-d": normal(7), "0-d": normal(), "no rows": normal(0, 3),
    "no columns": normal(3, 0), "transposed": normal(4, 3, 2).T, "every other": normal(3, 4, 8)[:, :, ::2],
    "reversed": normal(3, 4)[::-1, ::-1], "NaN": np.array([[1, nan, 2, 5], [inf, -inf, nan, 0]], "float32"),
    "float64": normal(3, 4, dtype="float64"), "float16": normal(3, 4, dtype="float16"),
    "int64": rng.permutation(12).reshape(3, 4), "uint8": rng.permutation(12).reshape(3, 4).astype("uint8"),
    "bool": np.array([[True, False], [False, False]]),
}
TIES = rng.integers(0, 3, (4, 9)).astype("float32")
CASES = [{"dim": dim, "descending": descending} for dim in (0, -1, 1, -2) for descending in (False, True)]


@pytest.mark.parametrize("kind", [k for k in INPUTS if k not in ("1-d", "2-d", "transposed", "float64")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sort_and_argsort(case, kind):
    x = INPUTS[kind]
    for name in ("sort", "argsort"):
        if not -max(x.ndim, 1) <= case["dim"] < max(x.ndim, 1):
            fails_alike(getattr(mytorch, name), getattr(torch, name), x, **case, match="range")
            continue
        check(getattr(mytorch, name), getattr(torch, name), x, **case, stable=True)
        check(lambda a, n=name: getattr(a, n)(**case), lambda a, n=name: getattr(a, n)(**case), x, grad=False)


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_positional_arguments(name):
    check(getattr(mytorch, name), getattr(torch, name), normal(3, 4))
    check(getattr(mytorch, name), getattr(torch, name), normal(3, 4), 0, True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_equal_elements_keep_their_order(dim, descending):
    for x in (TIES, np.where(TIES == 1, nan, TIES), TIES.astype("int64"), TIES > 0):
        for name in ("sort", "argsort"):
            check(
                getattr(mytorch, name), getattr(torch, name), x, dim=dim, descending=descending, stable=True
            )


@each("kind", [k for k in INPUTS if k not in ("0-d", "bool")])
@each("largest", [True, False])
@each("k, dim", [(0, -1), (1, -1), (2, 0), (3, -1), (4, 1)])
def test_topk(k, dim, largest, kind):
    x = INPUTS[kind]
    if dim >= x.ndim or x.shape[dim] < k:
        return fails_alike(mytorch.topk, torch.topk, x, k, dim, largest, match="range")
    check(lambda a: mytorch.topk(a, k, dim, largest), lambda a: torch.topk(a, k, dim, largest), x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 8, 9])
def test_topk_unsorted_has_the_same_elements(k, largest):
    x = normal(4, 9)
    got = Tensor(x).topk(k, largest=largest, sorted=False)
    want = torch.topk(torch.from_numpy(x), k, largest=largest, sorted=True)
    np.testing.assert_array_equal(np.sort(got.indices.numpy(), 1), np.sort(want.indices.numpy(), 1))
    np.testing.assert_array_equal(np.take_along_axis(x, got.indices.numpy(), 1), got.values.numpy())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_topk_of_equal_elements(k, largest):
    """Which of them is not told; the values are, and the indices must be theirs, in order."""
    got = Tensor(TIES).topk(k, largest=largest)
    want = torch.topk(torch.from_numpy(TIES), k, largest=largest)
    indices = got.indices.numpy()
    np.testing.assert_array_equal(got.values.numpy(), want.values.numpy())
    np.testing.assert_array_equal(np.take_along_axis(TIES, indices, 1), got.values.numpy())
    same = got.values.numpy()[:, 1:] == got.values.numpy()[:, :-1]
    assert np.all(np.diff(indices, axis=1)[same] > 0)


def test_zero_dims_and_names():
    x = np.array(3.0, "float32")
    check(mytorch.sort, torch.sort, x)
    check(mytorch.topk, torch.topk, x, 1)
    check(mytorch.topk, torch.topk, x, 0)  # all there is, in PyTorch
    for kind in ("3-d", "0-d", "no rows", "int64", "NaN"):
        check(mytorch.msort, torch.msort, INPUTS[kind])
    result = Tensor(normal(4)).topk(2)
    assert (
        result.values is result[0] and result.indices is result[1] and result.indices.dtype == mytorch.int64
    )
    assert Tensor(normal(4)).sort().indices.dtype == mytorch.int64


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_shape(shape, data):
    x = rng.permutation(int(np.prod(shape))).reshape(shape).astype("float64")
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, shape[dim]))
    flag = data.draw(st.booleans())
    check(lambda a: mytorch.topk(a, k, dim, flag), lambda a: torch.topk(a, k, dim, flag), x)
    check(lambda a: mytorch.sort(a, dim, flag), lambda a: torch.sort(a, dim, flag), x)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_agree_with_finite_differences(dim):
    x = Tensor(normal(3, 4, dtype="float64"), requires_grad=True)
    assert gradcheck(lambda a: a.sort(dim).values, x)
    assert gradcheck(lambda a: a.topk(2, dim).values, x)
    assert gradcheck(lambda a: a.topk(2, dim, sorted=False).values, x)
    assert gradgradcheck(lambda a: mytorch.sort(a**2, dim).values, x)
    assert gradgradcheck(lambda a: mytorch.topk(a**2, 2, dim).values, x)


FAILS = {
    "too many": (lambda t, a: t.topk(a, 4), np.ones((2, 3)), r"range: 4 of 3 in dim 1, shape \(2, 3\)"),
    "negative": (lambda t, a: t.topk(a, -1), np.ones(3), "index k out of range: -1 of 3"),
    "k is a float": (lambda t, a: t.topk(a, 1.0), np.ones(3), "integer"),
    "bool": (lambda t, a: t.topk(a, 1), np.ones(3, bool), "bool"),
    "not a tensor": (lambda t, a: t.sort([1, 2]), np.ones(3), "expected a Tensor, got list"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, x, match = FAILS[what]
    fails_alike(lambda a: call(mytorch, a), lambda a: call(torch, a), x, match=match)
