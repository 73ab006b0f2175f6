"""max, min, amax, amin, argmax, argmin against PyTorch."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck
from tests.each import each
from tests.oracle import check, fails_alike

rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


INPUTS = {
    "3-d": normal(2, 3, 4), "2-d": normal(5, 6), "1-d": normal(7), "0-d": normal(), "no rows": normal(0, 3),
    "no columns": normal(3, 0), "transposed": normal(4, 3, 2).T, "every other": normal(3, 4, 8)[:, :, ::2],
    "reversed": normal(3, 4)[::-1, ::-1], "ties": rng.integers(0, 3, (4, 6)).astype("float32"),
    "NaN": np.array([[1, np.nan, 2, np.nan], [np.nan, 1, 1, 3], [1, 5, 5, 0]], "float32"),
    "inf": np.array([[np.inf, 1, np.inf], [-np.inf, -np.inf, 0]], "float32"),
    "float16": normal(3, 4, dtype="float16"), "int32": rng.integers(-5, 5, (3, 4), dtype="int32"),
    "uint8": rng.integers(0, 5, (3, 4), dtype="uint8"), "bool": rng.random((3, 4)) < 0.5,
}
# op, arguments
CASES = [
    *((name, args, {}) for name in ("max", "min", "amax", "amin", "argmax", "argmin")
      for args in ((), (0,), (-1,), (1, True), (-2,))),
    *((name, (), {"dim": dim, "keepdim": keepdim}) for name in ("amax", "amin") for dim in ((), (0, 1), (-1,))
      for keepdim in (False, True)),
    *((name, (), {"keepdim": True}) for name in ("amax", "amin", "argmax", "argmin")),
]


@each("kind", [k for k in INPUTS if k not in ("1-d", "2-d", "transposed")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_pytorch(case, kind):
    """In values, indices, dtypes, shapes and gradients; or in the kind of error."""
    (name, args, kwargs), x = case, INPUTS[kind]
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    try:
        theirs(torch.tensor(x.copy()), *args, **kwargs)
    except Exception as refused:
        with pytest.raises(
            type(refused), match=r"Dimension out of range|expected (a )?dim|does not support bool"
        ):
            ours(Tensor(x), *args, **kwargs)
        return
    check(lambda a: ours(a, *args, **kwargs), lambda a: theirs(a, *args, **kwargs), x)
    check(
        lambda a: getattr(a, name)(*args, **kwargs),
        lambda a: getattr(a, name)(*args, **kwargs),
        x,
        grad=False,
    )


@pytest.mark.parametrize("name", ["max", "min"])
def test_of_two_tensors(name):
    x, y = normal(3, 4), normal(4)
    ours, theirs = getattr(mytorch, name), getattr(torch, name)
    check(ours, theirs, x, y)
    check(lambda a, b: getattr(a, name)(b), lambda a, b: getattr(a, name)(b), x, y)
    check(lambda a, b: ours(a, other=b), lambda a, b: theirs(a, other=b), x, y)


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_result_along_a_dim_has_names(name):
    result = getattr(Tensor(normal(3, 4)), name)(1)
    values, indices = result
    assert result.values is values and result.indices is indices
    assert not indices.requires_grad and indices.dtype == mytorch.int64


@pytest.mark.parametrize("kwargs", [{}, {"dim": 0}, {"dim": -1, "keepdim": True}, {"keepdim": True}], ids=str)
@pytest.mark.parametrize("kind", ["3-d", "ties", "inf", "0-d", "int32", "uint8", "bool", "float16"])
def test_aminmax(kind, kwargs):
    if kind == "0-d" and kwargs.get("dim") == -1:
        kwargs = {"dim": 0}
    call = lambda a: a.aminmax(**kwargs)  # noqa: E731
    check(call, call, INPUTS[kind])
    result = mytorch.aminmax(Tensor(INPUTS[kind]), **kwargs)
    assert result.min is result[0] and result.max is result[1]


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
def test_equal_elements_share_the_gradient(name):
    x = Tensor(np.array([2.0, 1.0, 2.0, 1.0]), requires_grad=True)
    getattr(x, name)().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0.5, 0, 0.5, 0] if "max" in name else [0, 0.5, 0, 0.5])


@pytest.mark.parametrize("name", ["max", "min"])
def test_along_a_dim_the_first_one_gets_it(name):
    x = Tensor(np.array([[2.0, 2.0, 1.0, 1.0]]), requires_grad=True)
    getattr(x, name)(1).values.backward(np.ones(1))
    np.testing.assert_array_equal(x.grad.numpy(), [[1, 0, 0, 0]] if name == "max" else [[0, 0, 1, 0]])


@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_gradients_agree_with_finite_differences(name, dim):
    x = Tensor(normal(3, 4, dtype="float64"), requires_grad=True)
    assert gradcheck(lambda a: getattr(a, name)(dim), x)


FAILS = {
    "nothing": (lambda t, a: t.max(a), np.ones((0, 3)), r"max\(\): expected a dim.*\(0, 3\)"),
    "no position": (lambda t, a: t.argmin(a), np.ones((0, 3)), r"argmin\(\): expected a dim.*\(0, 3\)"),
    "an empty dim": (lambda t, a: t.min(a, 1), np.ones((2, 0)), r"min\(\): expected dim 1 to have non-zero"),
    "several dims": (lambda t, a: t.max(a, (0, 1)), np.ones((2, 2)), "a dim is an int"),
    "bool": (lambda t, a: t.argmax(a), np.ones(2, bool), "bool"),
    "not a tensor": (lambda t, a: t.max([1, 2]), np.ones(1), "expected a Tensor, got list"),
}


@pytest.mark.parametrize("what", FAILS)
def test_refuses(what):
    call, x, match = FAILS[what]
    fails_alike(lambda a: call(mytorch, a), lambda a: call(torch, a), x, match=match)
