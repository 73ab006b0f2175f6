"""Running sums, products, extremes and log-sum-exps against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradgradcheck
from mytorch.ops.scan import scan
from tests.database.compare import compare
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
nan, inf = np.nan, np.inf
NAMES = ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


INPUTS = {
    "3-d": normal(2, 3, 4), "1-d": normal(7), "0-d": normal(), "one": normal(1), "no rows": normal(0, 3),
    "no columns": normal(3, 0), "transposed": normal(4, 3, 2).T, "every other": normal(3, 4, 8)[:, :, ::2],
    "reversed": normal(3, 4)[::-1, ::-1], "ties": rng.integers(0, 3, (4, 6)).astype("float32"),
    "float64": normal(3, 4, dtype="float64"),
}
# op, arguments
CASES = [(name, (dim,), {}) for name in NAMES for dim in (0, -1)]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_pytorch(case, kind):
    (name, args, kwargs), x = case, INPUTS[kind]
    check(getattr(mytorch, name), getattr(torch, name), x, *args, **kwargs)
    check(getattr(Tensor, name), getattr(torch.Tensor, name), x, *args, grad=False, **kwargs)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name, dtype):
    x = rng.integers(0, 3, (4, 5)).astype(dtype)
    if name == "logcumsumexp" and dtype != "float16":
        fails_alike(
            mytorch.logcumsumexp, torch.logcumsumexp, x, 0, match=f"floating-point dtype, got {dtype}"
        )
    else:
        check(getattr(mytorch, name), getattr(torch, name), x, 1)


@pytest.mark.parametrize("wanted", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool"])
def test_dtype_argument(dtype, wanted):
    x = rng.integers(0, 3, (3, 4)).astype(dtype)
    mine, theirs = getattr(mytorch, wanted), getattr(torch, wanted)
    grad = wanted != "int32"  # PyTorch raises in the forward pass; we record nothing
    check(lambda a: a.cumprod(0, dtype=mine), lambda a: a.cumprod(0, dtype=theirs), x, grad=grad)


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_in_place(name):
    def twice(a):
        y = a * 2
        assert getattr(y, name)(1) is y
        return y * y

    check(twice, twice, normal(3, 4))
    x = mytorch.tensor([1, 2, 3], dtype=mytorch.int32)
    assert getattr(x, name)(0).dtype == mytorch.int32
    with pytest.raises(RuntimeError, match="can't be cast to the tensor's type bool"):
        getattr(mytorch.tensor([True, False]), name)(0)


@pytest.mark.parametrize(
    "x", [[2, 3, 4], [0, 3, 4], [2, 0, 3], [2, 3, 0], [0, 3, 0, 2], [0, 0, 0], [5]], ids=str
)
@pytest.mark.parametrize("name", ["cumprod", "prod"])
def test_products_with_zeros_have_both_derivatives(name, x):
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    compare(getattr(mytorch, name), getattr(torch, name), ((x, 0), {}), grad=True, second=True)


def test_the_gradient_of_a_long_cumprod_is_as_good_as_pytorchs():
    check(lambda a: a.cumprod(0), lambda a: a.cumprod(0), rng.uniform(0.9, 1.1, (300, 2)))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_indices_of_running_extremes(name):
    """Of equal elements the last; NaN stays, at the last NaN."""
    for x in (
        [1, 3, 3, 2, 3],
        [nan, 1, nan, 2],
        [1, nan, 5, nan, 0],
        [inf, inf, -inf, -inf],
        [0.0, -0.0, 0.0],
    ):
        check(getattr(mytorch, name), getattr(torch, name), np.array(x, "float32"), 0)
    result = getattr(Tensor(normal(3, 4)), name)(1)
    assert (
        result.values is result[0] and result.indices is result[1] and result.indices.dtype == mytorch.int64
    )


def test_logcumsumexp_of_large_and_infinite_values():
    for x in ([1e4, 1e4, 1], [-1e4, -1e4, -1e4], [-1e4, 1e4, 3], [1, -inf, 2], [-inf, -inf, 1], [nan, 1, 2]):
        check(mytorch.logcumsumexp, torch.logcumsumexp, np.array(x, "float64"), 0)
    check(mytorch.logcumsumexp, torch.logcumsumexp, np.array([1, inf, -inf]), 0, grad=False)
    x = Tensor(np.array([0.0, 800.0, 1.0]), requires_grad=True)  # exp(-y) alone would be 0, exp(x) infinite
    x.logcumsumexp(0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1, 2, 0], atol=1e-12)


DIFFERENTIABLE = {
    "cumsum": lambda a: a.cumsum(1), "cumprod": lambda a: a.cumprod(0),
    "logcumsumexp": lambda a: a.logcumsumexp(1),
    "cummax": lambda a: a.cummax(0).values ** 2, "cummin": lambda a: a.cummin(1).values ** 2,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_gradients_agree_with_finite_differences(name):
    assert gradgradcheck(DIFFERENTIABLE[name], Tensor(normal(3, 4, dtype="float64"), requires_grad=True))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 9])
def test_scan_by_doubling(n):
    """Strings show which elements were combined, and in which order."""
    words = np.array([["abcdefghi"[i], "123456789"[i]] for i in range(n)], object).reshape(n, 2)
    (got,) = scan(lambda before, now: (before[0] + now[0],), (words,), 0)
    assert got.tolist() == [["abcdefghi"[: i + 1], "123456789"[: i + 1]] for i in range(n)]


FAILS = {
    "no such dim": (lambda t, a: t.cumprod(a, 2), r"range of \[-2, 1\], but got 2"),
    "no dim": (lambda t, a: t.cummax(a), "dim"),
    "a tuple": (lambda t, a: t.cumprod(a, (0, 1)), "int"),
    "not a tensor": (lambda t, a: t.cummin([1, 2], 0), "Tensor"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, match = FAILS[what]
    fails_alike(lambda a: call(mytorch, a), lambda a: call(torch, a), np.ones((2, 2)), match=match)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_a_dim_of_one_element_shares_no_memory(device, name):
    x = mytorch.tensor([[1], [2]], device=device)
    getattr(x, name)(1)[0].fill_(7)
    assert x.tolist() == [[1], [2]]
