"""Sums, means, products, truth, norms and log-sum-exp against PyTorch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck
from tests.each import each
from tests.oracle import check, fails_alike

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # PyTorch's
rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


INPUTS = {
    "3-d": normal(2, 3, 4), "2-d": normal(5, 6), "1-d": normal(7), "0-d": normal(), "no rows": normal(0, 3),
    "no columns": normal(3, 0), "transposed": normal(4, 3, 2).T, "every other": normal(3, 4, 8)[:, :, ::2],
    "reversed": normal(3, 4)[::-1, ::-1], "broadcast": np.broadcast_to(normal(3, 1), (3, 4)),
    "float64": normal(3, 4, dtype="float64"),
}
# op, arguments
CASES = [
    *((name, args, {}) for name in ("sum", "mean", "var", "std", "prod", "any", "all")
      for args in ((), (0,), (-1,), (0, True)) if not (name in ("var", "std") and len(args) > 1)),
    *((name, (), {"dim": dim, "keepdim": keepdim})
      for name in ("sum", "mean", "var", "std", "norm", "logsumexp", "any", "all")
      for dim in ((0, 1), (0, -1), (1, 2), (-1,), (0, 1, 2)) for keepdim in (False, True)
      if not (name == "norm" and len(dim) > 2)),  # the Frobenius norm of three dims, which PyTorch refuses
    ("norm", (2,), {"dim": (0, 1, 2)}),
    *((name, (None, True), {}) for name in ("sum", "mean", "any", "all")),
    *((name, (), {"dim": None, "keepdim": True}) for name in ("sum", "var", "std", "norm")),
    *((name, (dim,), {}) for name in ("cumsum", "logsumexp") for dim in (0, 1, -1)),
    *((name, ((),), {}) for name in ("sum", "mean", "var", "any", "all")),
    *((name, ([],), {}) for name in ("sum", "any")),
    *((name, (), {"correction": c}) for name in ("var", "std") for c in (0, 1, 0.5, 2)),
    *((name, (0,), {"correction": 0, "keepdim": True}) for name in ("var", "std")),
    *((name, (0,), {"unbiased": False}) for name in ("var", "std", "var_mean")),
    *((name, args, {}) for name in ("var", "std", "std_mean")
      for args in ((False,), (True,), (1, False), (1, True, True))),
    *(("norm", (p,), {}) for p in ("fro", 2, 1, 0, 3, 1.5, 0.5, -1, math.inf, -math.inf)),
    *(("norm", (p, 1), {"keepdim": True}) for p in (None, 2, 1, 0, 3, 0.5, -2, math.inf, -math.inf)),
]


def outcome(function, *args, **kwargs):
    """What PyTorch makes of a call: None, or the class of its error."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error)
    return None


@each("kind", [k for k in INPUTS if k not in ("1-d", "2-d", "transposed", "float64")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_pytorch(case, kind):
    """In values, dtypes, shapes and gradients; or in the kind of error."""
    (name, args, kwargs), x = case, INPUTS[kind]
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    refused = outcome(theirs, torch.tensor(x.copy()), *args, **kwargs)
    if refused is not None:
        with pytest.raises(refused, match="[Dd]im|no elements"):
            ours(Tensor(x), *args, **kwargs)
        return
    grad = (name, args) != ("var", ((),))  # PyTorch's is infinite there
    check(lambda a: ours(a, *args, **kwargs), lambda a: theirs(a, *args, **kwargs), x, grad=grad)
    if hasattr(torch.Tensor, name):
        check(
            lambda a: getattr(a, name)(*args, **kwargs),
            lambda a: getattr(a, name)(*args, **kwargs),
            x,
            grad=False,
        )


DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]


@each("dtype", DTYPES)
@each(
    "name", ["sum", "mean", "var", "std", "prod", "any", "all", "norm", "cumsum", "logsumexp"]
)
def test_dtypes(name, dtype):
    x = rng.integers(0, 3, (4, 5)).astype(dtype)
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    for kwargs in ({}, {"dim": 1}):
        if not kwargs and name in ("cumsum", "logsumexp"):
            continue
        if outcome(theirs, torch.from_numpy(x), **kwargs):
            fails_alike(ours, theirs, x, match=f"{name}.*floating-point dtype, got {dtype}", **kwargs)
        else:
            check(lambda a, k=kwargs: ours(a, **k), lambda a, k=kwargs: theirs(a, **k), x)


@each("wanted", ["float16", "float32", "float64", "int32", "int64"])
@each("dtype", ["float16", "float32", "int64", "bool"])
@each("name", ["sum", "mean", "prod", "cumsum", "norm"])
def test_dtype_argument(name, dtype, wanted):
    x = (rng.standard_normal((3, 4)) * 2).astype(dtype)
    args = {"cumsum": (0,), "norm": (2,)}.get(name, ())
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    result = {"dtype": getattr(mytorch, wanted)}, {"dtype": getattr(torch, wanted)}
    if outcome(theirs, torch.from_numpy(x), *args, **result[1]):
        with pytest.raises(RuntimeError, match=f"{name}.*(floating-point|narrow)"):
            ours(Tensor(x), *args, **result[0])
    else:
        wide = {"rtol": 5e-3, "atol": 5e-3} if "float16" in (dtype, wanted) else {}
        grad = "int" not in wanted  # PyTorch raises in the forward pass; we record nothing
        check(
            lambda a: ours(a, *args, **result[0]),
            lambda a: theirs(a, *args, **result[1]),
            x,
            grad=grad,
            **wide,
        )


def test_half_precision_is_accumulated_in_single():
    x = np.ones((5000, 3), "float16")
    for name in ("sum", "mean", "norm"):
        check(lambda a, n=name: getattr(a, n)(dim=0), lambda a, n=name: getattr(a, n)(dim=0), x)
    check(lambda a: a.cumsum(0), lambda a: a.cumsum(0), x)
    large = np.array([300, 300, 1], "float16")  # the square overflows
    check(lambda a: a.norm(), lambda a: a.norm(), large)
    check(lambda a: a.var(), lambda a: a.var(), large)


def test_column_sums_are_as_exact_as_numpys():
    """The sum over the leading dims of a contiguous float array goes through BLAS."""
    x = normal(3000, 7, 33)
    exact = x.astype("float64").sum((0, 1))
    for a in (x, np.asfortranarray(x)):
        error = np.abs(Tensor(a).sum((0, 1)).numpy() - exact).max()
        assert error <= 2 * np.abs(x.sum((0, 1)) - exact).max()
    check(lambda a: a.sum((0, 1), keepdim=True), lambda a: a.sum((0, 1), keepdim=True), normal(3, 4, 5))
    special = np.array([[np.inf, 1, np.nan, np.inf], [1, 2, 3, -np.inf]], "float32")
    check(lambda a: a.sum(0), lambda a: a.sum(0), special)


@pytest.mark.parametrize("x", [[2, 3, 4], [0, 3, 4], [0, 3, 0], [0, 0, 0], [5]], ids=str)
def test_gradient_of_prod_with_zeros(x):
    x = np.array(x, "float64")
    check(mytorch.prod, torch.prod, x)
    check(lambda a: a.prod(1, keepdim=True), lambda a: a.prod(1, keepdim=True), np.stack([x, x + 1, x * 2]))


@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_logsumexp_of_large_and_infinite_values(dim):
    inf = np.inf
    check(mytorch.logsumexp, torch.logsumexp, np.array([[1e4, 1e4], [-1e4, 3]], "float32"), dim)
    check(mytorch.logsumexp, torch.logsumexp, np.array([[-inf, -inf], [-inf, 1]], "float32"), dim)
    check(mytorch.logsumexp, torch.logsumexp, np.array([[inf, 1], [inf, inf]], "float32"), dim)
    check(mytorch.logsumexp, torch.logsumexp, np.array([[np.nan, 1], [2, 3]], "float32"), dim)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, math.inf, -math.inf, -1])
def test_norm_has_subgradient_zero_at_zero(p):
    check(lambda a: a.norm(p), lambda a: a.norm(p), np.zeros(3, "float32"))
    check(
        lambda a: a.norm(p, 1),
        lambda a: a.norm(p, 1),
        np.array([[0, 0, 0], [1, 0, -2], [2, 2, -2]], "float32"),
    )


def test_std_of_equal_values_has_gradient_zero():
    check(lambda a: a.std(), lambda a: a.std(), np.full(4, 3.0, "float32"))
    check(
        lambda a: a.std(0, correction=0),
        lambda a: a.std(0, correction=0),
        np.array([[1, 1], [1, 2]], "float32"),
    )


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "prod", "norm"])
def test_nan_and_inf(name):
    x = np.array([[1, np.nan, 2], [np.inf, 1, 3], [-np.inf, np.inf, 0]], "float32")
    check(
        lambda a: getattr(mytorch, name)(a, dim=1),
        lambda a: getattr(torch, name)(a, dim=1),
        x,
        grad=name != "prod",
    )


HOLES = np.array([[1, np.nan, 2], [np.nan, np.nan, np.nan], [0, np.inf, 3]], "float32")


@pytest.mark.parametrize("kwargs", [{}, {"dim": 1}, {"dim": (0, 1), "keepdim": True}, {"dim": ()}], ids=str)
@pytest.mark.parametrize("name", ["nansum", "nanmean", "count_nonzero"])
def test_without_nan(name, kwargs):
    kwargs = {"dim": kwargs["dim"]} if name == "count_nonzero" and kwargs else kwargs
    for x in (HOLES, HOLES.T, HOLES[::-1], np.float64(HOLES), np.float16(HOLES), HOLES[:0], normal(2, 3, 4)):
        call = lambda a: getattr(a, name)(**kwargs)  # noqa: E731
        check(call, call, x)
        check(getattr(mytorch, name), getattr(torch, name), x, grad=False, **kwargs)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool"])
def test_without_nan_of_integers(dtype):
    x = rng.integers(0, 3, (4, 5)).astype(dtype)
    check(mytorch.nansum, torch.nansum, x, 1)
    check(mytorch.count_nonzero, torch.count_nonzero, x, 1)
    fails_alike(mytorch.nanmean, torch.nanmean, x, match=f"floating-point dtype, got {dtype}")


def test_input_is_a_keyword():
    x = normal(3, 4)
    for name in ("sum", "prod", "var", "std", "nansum", "norm", "any", "count_nonzero"):
        ours, theirs = getattr(mytorch, name), getattr(torch, name)
        check(lambda a, f=ours: f(input=a), lambda a, f=theirs: f(input=a), x)


DIFFERENTIABLE = {
    "sum": lambda a: a.sum(1), "mean": lambda a: a.mean((0, 1)), "var": lambda a: a.var(0),
    "std": lambda a: a.std(1),
    "prod": lambda a: a.prod(1), "cumsum": lambda a: a.cumsum(0), "norm 2": lambda a: a.norm(2, 0),
    "norm 3": lambda a: a.norm(3), "norm 0.5": lambda a: a.norm(0.5, 1),
    "norm inf": lambda a: a.norm(math.inf, 1),
    "logsumexp": lambda a: a.logsumexp(1),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_agree_with_finite_differences(name):
    assert gradcheck(DIFFERENTIABLE[name], Tensor(normal(3, 4, dtype="float64"), requires_grad=True))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_any_shape_and_any_dims(shape, data):
    span = range(-len(shape), len(shape))
    dims = data.draw(
        st.lists(st.sampled_from(span), unique_by=lambda d: d % len(shape)) if shape else st.just([])
    )
    keepdim = data.draw(st.booleans())
    x = normal(*shape, dtype="float64")
    for name in ("sum", "mean", "var"):
        grad = name != "var" or dims != []  # PyTorch's is infinite there
        call = lambda a, n=name: getattr(a, n)(dims, keepdim=keepdim)  # noqa: E731
        check(call, call, x, grad=grad)


FAILS = {
    "mean of integers": (lambda t, a: t.mean(a), (np.arange(3),), "floating-point dtype, got int64"),
    "mean as integers": (lambda t, a: t.mean(a, dtype=t.int64), (np.ones(3),), "dtype, got int64"),
    "norm of integers": (lambda t, a: t.norm(a), (np.arange(3),), "floating-point dtype, got int64"),
    "inf norm of nothing": (lambda t, a: t.norm(a, math.inf), (np.ones((2, 0)),), r"inf-norm.*\[2, 0\]"),
    "two corrections": (lambda t, a: t.var(a, unbiased=True, correction=1), (np.ones(3),), "both"),
    "several dims of prod": (lambda t, a: t.prod(a, (0, 1)), (np.ones((2, 2)),), "a dim is an int"),
    "no dim of cumsum": (lambda t, a: t.cumsum(a), (np.ones((2, 2)),), "dim"),
    "not a tensor": (lambda t, a: t.sum([1, 2]), (np.ones(1),), "expected a Tensor, got list"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, arrays, match = FAILS[what]
    fails_alike(lambda *a: call(mytorch, *a), lambda *a: call(torch, *a), *arrays, match=match)


def test_gradients_of_views_of_one_buffer_are_apart():
    """The gradient of a sum is a broadcast view; two leaves must not end up with the same memory."""
    x, y = (Tensor(np.ones((2, 3), "float32"), requires_grad=True) for _ in range(2))
    (x + y).sum().backward()
    x.grad[0] = 5
    np.testing.assert_array_equal(y.grad.numpy(), np.ones((2, 3)))


def test_an_overwritten_input_is_noticed():
    x = Tensor(np.ones((2, 3), "float32"), requires_grad=True)
    y = x * 2
    loss = y.var()
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
