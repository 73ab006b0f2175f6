"""Medians, quantiles, k-th smallest and most frequent elements against PyTorch."""

import numpy as np
import pytest
import torch

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
    "reversed": normal(3, 4)[::-1, ::-1], "ties": rng.integers(0, 3, (3, 5)).astype("float32"),
    "float16": rng.permutation(12).reshape(3, 4).astype("float16"), "int64": rng.integers(0, 3, (3, 5)),
    "uint8": rng.permutation(12).reshape(3, 4).astype("uint8"), "bool": np.ones((3, 4), bool),
    "NaN": np.array([[1, nan, 2, nan], [nan, 1, 1, 3], [3, 1, 0, 2]], "float32"),
    "inf": np.array([[-inf, 1, 2, 3], [1, 2, inf, inf]], "float32"),
}
Q = [0.0, 0.2, 0.5, 0.9, 1.0]
# op, arguments
CASES = [
    *((name, args, {}) for name in ("median", "nanmedian") for args in ((), (0,), (-1,), (1, True))),
    *(("kthvalue", args, {}) for args in ((1,), (2,), (3, 0), (2, -1, True), (4, 1))),
    *(("mode", args, {}) for args in ((), (0,), (1, True))),
    *((name, args, kwargs) for name in ("quantile", "nanquantile")
      for args, kwargs in (((0.3,), {}), ((1.0, 0), {}), ((0.0, -1, True), {}), ((0.7,), {"keepdim": True}),
                           *(((0.6,), {"dim": 1, "interpolation": i})
                             for i in ("linear", "lower", "higher", "midpoint", "nearest")))),
]
# PyTorch doesn't tell which of equal elements it takes here; see the tests of ties below.
UNTOLD = {("kthvalue", "NaN"), ("kthvalue", "ties"), ("kthvalue", "int64"), ("mode", "NaN")}


@each("kind", INPUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_pytorch(case, kind):
    """In values, indices, dtypes, shapes and gradients; or in the kind of error."""
    (name, args, kwargs), x = case, INPUTS[kind]
    if (name, kind) in UNTOLD:
        return
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    try:
        theirs(torch.tensor(x.copy()), *args, **kwargs)
    except Exception as refused:
        with pytest.raises(type(refused), match=r"dim|no order|range|with elements"):
            ours(Tensor(x), *args, **kwargs)
        return
    check(ours, theirs, x, *args, **kwargs)
    method, theirs = getattr(Tensor, name), getattr(torch.Tensor, name)
    check(method, theirs, x, *args, grad=False, **kwargs)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_kthvalue_of_equal_elements(k):
    """Which of them is not told; the value is, and here they count in their order."""
    x = INPUTS["ties"]
    got, want = Tensor(x).kthvalue(k), torch.from_numpy(x).kthvalue(k)
    np.testing.assert_array_equal(got.values.numpy(), want.values.numpy())
    np.testing.assert_array_equal(got.indices.numpy(), np.argsort(x, 1, kind="stable")[:, k - 1])


def test_nothing_but_nan():
    x = Tensor(np.full((2, 3), nan, "float32"), requires_grad=True)
    for y in (x.nanmedian(), x.nanmedian(1).values, x.median(), x.nanquantile(0.5, 0), x.quantile(0.5)):
        assert np.isnan(y.detach().numpy()).all()


def test_results_have_names():
    x = Tensor(normal(3, 4))
    for result in (x.median(0), x.nanmedian(0), x.kthvalue(1), x.mode()):
        assert result.values is result[0] and result.indices is result[1]
        assert result.indices.dtype == mytorch.int64


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_equal_elements_share_the_gradient_of_a_median_of_all(name):
    x = Tensor(np.array([1.0, 2.0, 2.0, 5.0, 0.0]), requires_grad=True)
    getattr(x, name)().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0.5, 0.5, 0, 0])


@pytest.mark.parametrize("kwargs", [{}, {"dim": 0}, {"dim": 1, "keepdim": True}, {"keepdim": True}], ids=str)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_several_quantiles(name, kwargs):
    for x in (normal(5, 4), INPUTS["NaN"], normal(5, 4, dtype="float64")):
        q = np.array(Q, x.dtype)
        check(getattr(mytorch, name), getattr(torch, name), x, q, **kwargs)


def test_both_gradients_of_quantiles():
    x = Tensor(rng.permutation(12).reshape(3, 4).astype("float64"), requires_grad=True)
    q = Tensor(np.array([0.15, 0.4, 0.8]), requires_grad=True)
    for function in (lambda x, q: x.quantile(q, 1), lambda x, q: x.nanquantile(q) ** 2):
        assert gradcheck(function, (x, q))
        assert gradgradcheck(function, (x, q))


def test_second_gradients_agree_with_finite_differences():
    x = Tensor(rng.permutation(12).reshape(3, 4) / 4, requires_grad=True)
    for function in (
        lambda x: x.median() ** 2,
        lambda x: x.median(1).values ** 2,
        lambda x: x.kthvalue(2).values ** 2,
        lambda x: x.mode(0).values ** 2,
    ):
        assert gradgradcheck(function, x)


ONE = np.ones((3, 4), "float32")
FAILS = {
    "k too large": (lambda t, a: t.kthvalue(a, 5), ONE, "out of range: 5 of 4 in dim 1"),
    "k too small": (lambda t, a: t.kthvalue(a, 0), ONE, "out of range: 0 of 4"),
    "k of bool": (lambda t, a: t.kthvalue(a, 1), ONE > 0, "bool"),
    "two dims": (lambda t, a: t.median(a, (0, 1)), ONE, "int"),
    "quantile of integers": (lambda t, a: t.quantile(a, 0.5), np.arange(3), "got int64"),
    "quantile of half": (lambda t, a: t.quantile(a, 0.5), ONE.astype("float16"), "got float16"),
    "q above 1": (lambda t, a: t.quantile(a, 1.5), ONE, "between 0 and 1, got 1.5"),
    "q below 0": (lambda t, a: t.quantile(a, t.tensor([0.5, -1])), ONE, "between 0 and 1"),
    "q of two dims": (lambda t, a: t.quantile(a, t.ones(1, 1)), ONE, "vector"),
    "q of another dtype": (lambda t, a: t.quantile(a, t.tensor(0.5, dtype=t.float64)), ONE, "got float64"),
    "interpolation": (lambda t, a: t.quantile(a, 0.5, interpolation="cubic"), ONE, "got 'cubic'"),
    "nothing": (lambda t, a: t.nanquantile(a, 0.5), ONE[:0], r"with elements, got float32 of shape \[0, 4\]"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, x, match = FAILS[what]
    fails_alike(lambda a: call(mytorch, a), lambda a: call(torch, a), x, match=match)
