"""Norms of vectors and matrices, and singular values, against PyTorch."""

import math
import operator

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck, gradgradcheck
from mytorch.ops.svd import svd
from tests.each import each
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)
nan, inf = np.nan, math.inf


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


INPUTS = {
    "3-d": normal(2, 3, 4), "2-d": normal(5, 6), "1-d": normal(7), "0-d": normal(), "no rows": normal(0, 3),
    "no columns": normal(3, 0), "transposed": normal(4, 3, 2).T, "reversed": normal(3, 4)[::-1, ::-1],
    "zeros": np.zeros((2, 3), "float32"), "half": np.array([[3, 30, 1], [1, 2, 3]], "float16"),
    "NaN": np.array([[1, nan, 2], [4, 1, 3]], "float32"),
    "inf": np.array([[inf, 1, 2], [4, 1, 3]], "float32"),
}
ORDERS = (2, 1, 0, 3, 0.5, 1.5, -1, -2, inf, -inf)
# op, arguments
CASES = [
    *(("linalg.vector_norm", (p,), {}) for p in ORDERS),
    *(("linalg.vector_norm", (p, 1, True), {}) for p in ORDERS),
    *(("linalg.vector_norm", (3,), {"dim": dim}) for dim in ((0, 1), (1, 0), (0,), ())),
    *(("linalg.matrix_norm", (p,), {}) for p in ("fro", "nuc", 1, -1, 2, -2, inf, -inf)),
    *(("linalg.matrix_norm", (p, (1, 0), True), {}) for p in ("fro", "nuc", 1, 2, inf)),
    *(("linalg.norm", args, {})
      for args in ((), (2,), ("nuc",), (1, 0), (None, (0, 1)), ("fro", (0, -1)), ("fro", 0))),
    *(("norm", (p, (0, 1)), {}) for p in ("fro", "nuc", 2, None)),
    ("norm", ("nuc",), {}), ("norm", (), {"p": "fro", "dim": 1, "keepdim": True}),
    ("linalg.svdvals", (), {}),
]


@each("kind", [k for k in INPUTS if k not in ("1-d", "2-d", "transposed")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_pytorch(case, kind):
    """In values, dtypes, shapes and gradients; or in the kind of error."""
    (name, args, kwargs), x = case, INPUTS[kind]
    ours, theirs = operator.attrgetter(name)(mytorch), operator.attrgetter(name)(torch)
    try:
        theirs(torch.tensor(x.copy()), *args, **kwargs)
    except Exception as refused:
        with pytest.raises(
            (type(refused).__mro__[1], type(refused)), match=r"(?i)dim|float32|finite|not defined"
        ):
            ours(Tensor(x), *args, **kwargs)
        return
    check(ours, theirs, x, *args, grad=x.size > 0, **kwargs)


def test_dtype_argument():
    x = normal(3, 4)
    for name in ("vector_norm", "matrix_norm", "norm"):
        ours, theirs = getattr(mytorch.linalg, name), getattr(torch.linalg, name)
        check(lambda a, f=ours: f(a, dtype=mytorch.float64), lambda a, f=theirs: f(a, dtype=torch.float64), x)
    check(
        lambda a: mytorch.linalg.matrix_norm(a, 1, dtype=mytorch.float64),
        lambda a: torch.linalg.matrix_norm(a, 1, dtype=torch.float64),
        x,
    )


@pytest.mark.parametrize("p", [1, 2, 3, inf])
def test_second_gradients_agree_with_finite_differences(p):
    x = Tensor(normal(3, 4, dtype="float64") + 3, requires_grad=True)
    assert gradgradcheck(lambda a: mytorch.linalg.vector_norm(a, p, 1), x)


@pytest.mark.parametrize("p", ["nuc", 2, -2, 1])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3)])
def test_both_gradients_of_matrix_norms(p, shape):
    x = Tensor(normal(*shape, dtype="float64"), requires_grad=True)
    assert gradcheck(lambda a: mytorch.linalg.matrix_norm(a, p), x)
    assert gradgradcheck(lambda a: mytorch.linalg.matrix_norm(a, p), x)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)])
def test_gradient_of_the_singular_vectors(shape):
    """Their signs are arbitrary, so functions are taken that don't depend on them."""
    x = Tensor(normal(*shape, dtype="float64"), requires_grad=True)
    assert gradcheck(lambda a: svd(a)[0] ** 2, x)
    assert gradcheck(lambda a: svd(a)[2] ** 2, x)
    assert gradcheck(lambda a: (svd(a)[0] * svd(a)[1].unsqueeze(-2)) @ svd(a)[2], x)


FAILS = {
    "integers": (lambda t, a: t.linalg.vector_norm(a.long()), "floating-point dtype, got int64"),
    "no number": (lambda t, a: t.linalg.vector_norm(a, "fro"), "number, got 'fro'"),
    "narrower": (lambda t, a: t.linalg.vector_norm(a, dtype=t.float16), "float16 is narrower"),
    "three dims": (lambda t, a: t.norm(a, "fro", (0, 1, 2)), r"two dims.*dim=\(0, 1, 2\)"),
    "one dim": (lambda t, a: t.linalg.matrix_norm(a, "fro", (1,)), "two dims"),
    "one dim twice": (lambda t, a: t.linalg.matrix_norm(a, 1, (0, -2)), "multiple times|two dims"),
    "unknown": (lambda t, a: t.linalg.matrix_norm(a, "foo"), "order 'foo' is not supported"),
    "unknown number": (lambda t, a: t.linalg.matrix_norm(a, 3), "order 3 is not supported"),
    "norm of unknown order": (lambda t, a: t.norm(a, "foo"), "order 'foo' is not supported"),
    "matrix of a vector": (lambda t, a: t.norm(a[0], "nuc"), "two dims"),
    "no dims": (lambda t, a: t.linalg.norm(a.reshape(1, 3, 4), 2), "1 or 2 dims"),
    "NaN": (lambda t, a: t.linalg.svdvals(a * nan), "finite"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, match = FAILS[what]
    with pytest.raises(Exception) as refused:  # noqa: B017 - whatever PyTorch raises
        call(torch, torch.ones(3, 4, dtype=torch.float64))
    kind = RuntimeError if issubclass(refused.type, RuntimeError) else refused.type
    with pytest.raises(kind, match=match):
        call(mytorch, mytorch.ones(3, 4, dtype=mytorch.float64))


def test_names_of_arguments():
    x = normal(3, 4)
    check(lambda a: mytorch.norm(input=a, p=1, dim=0), lambda a: torch.norm(input=a, p=1, dim=0), x)
    check(
        lambda a: mytorch.linalg.vector_norm(a, ord=1, axis=0), lambda a: torch.linalg.vector_norm(a, 1, 0), x
    )
    fails_alike(lambda a: a.norm(q=1), lambda a: a.norm(q=1), x, match="q")
