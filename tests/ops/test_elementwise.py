"""Element-wise ops against PyTorch: values, dtypes, shapes, gradients, errors, over all kinds of inputs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import broadcastable_shapes

import mytorch
from mytorch import Tensor
from mytorch.autograd import gradcheck
from tests.oracle import check, fails_alike, same

rng = np.random.default_rng(0)

# op: (lowest, highest) input
UNARY = {
    "neg": (-3, 3), "abs": (-3, 3), "exp": (-4, 4), "log": (0.1, 5), "sqrt": (0.1, 5), "rsqrt": (0.1, 5),
    "square": (-3, 3), "reciprocal": (0.2, 3), "sin": (-6, 6), "cos": (-6, 6), "tan": (-1, 1),
    "tanh": (-4, 4), "sigmoid": (-8, 8), "relu": (-3, 3), "sign": (-3, 3), "floor": (-3, 3),
    "ceil": (-3, 3), "round": (-3, 3), "positive": (-3, 3), "isnan": (-3, 3), "isinf": (-3, 3),
    "isfinite": (-3, 3), "logical_not": (-1, 1),
}  # fmt: skip
# op: ranges of the two inputs
BINARY = {
    "add": (-3, 3, -3, 3), "sub": (-3, 3, -3, 3), "mul": (-3, 3, -3, 3), "div": (-3, 3, 0.5, 3),
    "pow": (0.2, 3, -2, 2), "maximum": (-3, 3, -3, 3), "minimum": (-3, 3, -3, 3),
    "remainder": (-5, 5, 0.5, 3), "floor_divide": (-5, 5, 0.5, 3), "eq": (-1, 1, -1, 1), "ne": (-1, 1, -1, 1),
    "lt": (-3, 3, -3, 3), "le": (-3, 3, -3, 3), "gt": (-3, 3, -3, 3), "ge": (-3, 3, -3, 3),
    "logical_and": (-1, 1, -1, 1), "logical_or": (-1, 1, -1, 1), "logical_xor": (-1, 1, -1, 1),
}  # fmt: skip
NOT_DIFFERENTIABLE = {"floor_divide"}  # PyTorch records it, and raises in backward
SHAPES = {
    "2-d": lambda a: a((3, 4)), "0-d": lambda a: a(()), "empty": lambda a: a((0, 3)),
    "one": lambda a: a((1,)), "transposed": lambda a: a((4, 3)).T,
    "every other": lambda a: a((3, 8))[:, ::2], "reversed": lambda a: a((3, 4))[::-1, ::-1],
}  # fmt: skip
PAIRS = [
    ((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (3,)),
    ((3,), ()), ((), ()), ((0, 3), (1, 3)), ((1, 1), (5,)),
]  # fmt: skip
MIXED = [
    ("float32", "float64"), ("int64", "float32"), ("int32", "int64"), ("uint8", "int8"),
    ("bool", "int64"), ("float16", "float32"), ("int64", "float16"),
]  # fmt: skip


def array(low, high, dtype="float32"):
    def make(shape):
        if dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype.startswith(("int", "uint")):
            return np.asarray(rng.integers(int(np.ceil(low)), int(high) + 1, shape), dtype)
        return np.asarray(rng.uniform(low, high, shape), dtype)

    return make


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, shape):
    x = SHAPES[shape](array(*UNARY[name]))
    check(getattr(mytorch, name), getattr(torch, name), x)
    check(lambda t: getattr(t, name)(), lambda t: getattr(t, name)(), x)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_dtypes(name, dtype):
    low, high = UNARY[name]
    x = array(max(low, 1) if dtype == "uint8" or low > 0 else low, high, dtype)((3, 4))
    theirs = getattr(torch, name)
    try:
        theirs(torch.from_numpy(x))
    except RuntimeError:  # PyTorch has no such combination: neither may we give a number silently
        with pytest.raises((RuntimeError, TypeError)):
            getattr(mytorch, name)(Tensor(x))
    else:
        check(getattr(mytorch, name), theirs, x)


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    a, b, c, d = BINARY[name]
    x, y = array(a, b)(shapes[0]), array(c, d)(shapes[1])
    check(getattr(mytorch, name), getattr(torch, name), x, y, grad=name not in NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("dtypes", MIXED, ids=str)
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), ()), ((), (3,))], ids=str)
@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "lt", "sub", "floor_divide", "remainder"])
def test_mixed_dtypes_promote_as_in_pytorch(name, shapes, dtypes):
    x, y = array(1, 3, dtypes[0])(shapes[0]), array(1, 3, dtypes[1])(shapes[1])
    if dtypes[0] == "bool":
        if name == "sub":
            return fails_alike(mytorch.sub, torch.sub, x, y, match="bool")
        x = np.ones_like(x)
    ours, theirs, grad = getattr(mytorch, name), getattr(torch, name), name not in NOT_DIFFERENTIABLE
    rounding = {"rtol": 5e-3, "atol": 5e-3} if "float16" in dtypes else {}  # of the sum for the 0-d gradient
    for pair in ((x, y), (y, x)):
        check(ours, theirs, *pair, grad=grad, **rounding)


@pytest.mark.parametrize("number", [2, 2.5, True, np.float64(2.5), np.int32(2)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8", "float64"])
@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", "**", "<", "==", "&"])
def test_python_numbers_do_not_promote(operator, dtype, number):
    x = array(1, 4, dtype)((3,))
    plain = number.item() if isinstance(number, np.generic) else number
    bits_of_floats = operator == "&" and (dtype.startswith("float") or isinstance(plain, float))
    if bits_of_floats or (operator == "-" and plain is True):
        return check_refused(lambda a: eval(f"a {operator} n", {"a": a, "n": number}), x)
    if operator == "**" and plain is True:
        return  # PyTorch has an internal error there
    for ours, theirs in [(f"a {operator} n", f"a {operator} m"), (f"n {operator} a", f"m {operator} a")]:
        if isinstance(number, np.generic) and ours.startswith("n"):
            continue  # NumPy's scalar has the first word there
        # PyTorch has no derivative of a // n and n % a.
        grad = operator != "//" and not (operator == "%" and ours.startswith("n"))
        check(
            lambda a, e=ours: eval(e, {"a": a, "n": number}),
            lambda a, e=theirs: eval(e, {"a": a, "m": plain}), x, grad=grad,
        )  # fmt: skip


def check_refused(function, x):
    with pytest.raises((TypeError, RuntimeError)):
        function(Tensor(x))


SPECIAL = {
    "exp": [1000, -1000, np.inf, -np.inf, np.nan], "log": [0, -1, np.inf, np.nan],
    "sqrt": [0, -1, np.inf, np.nan], "rsqrt": [0, -1, np.inf],
    "sigmoid": [1000, -1000, np.inf, -np.inf, np.nan], "tanh": [1000, -np.inf, np.nan],
    "relu": [np.nan, np.inf, -np.inf, 0.0, -0.0], "abs": [0.0, -0.0, np.nan, -np.inf],
    "sign": [0.0, np.nan, -np.inf], "reciprocal": [0.0, np.inf], "round": [0.5, 1.5, 2.5, -0.5],
    "isnan": [np.nan, 1], "isinf": [-np.inf, np.nan, 1],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    check(getattr(mytorch, name), getattr(torch, name), np.array(SPECIAL[name], "float32"))


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("pow", [0, 0, 0, 2, -2, -2], [0, 2, -1, 0, 2, 3]), ("pow", [0, 1], [0.5, np.nan]),
        ("maximum", [1, 2, np.nan, 3], [1, 1, 1, np.nan]), ("minimum", [1, 2, np.nan, 3], [1, 1, 1, np.nan]),
        ("div", [1, -1, 0, np.inf], [0, 0, 0, np.inf]), ("remainder", [5, -5, 5, -5], [3, 3, -3, -3]),
        ("floor_divide", [5, -5, 1], [3, 3, 0]),
    ],
)  # fmt: skip
def test_special_pairs(name, x, y):
    x, y = np.array(x, "float32"), np.array(y, "float32")
    check(getattr(mytorch, name), getattr(torch, name), x, y, grad=name not in NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.0, -0.5])
def test_powers_of_and_by_numbers(exponent):
    x = np.array([0.5, 1.0, 3.0], "float32")
    check(lambda a: a**exponent, lambda a: a**exponent, x)
    check(lambda a: 2.0**a, lambda a: 2.0**a, x)
    check(lambda a: a**exponent, lambda a: a**exponent, np.zeros(2, "float32") if exponent > 1 else x)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rounding_modes_of_div(mode, dtype):
    x, y = np.array([7, -7, 7, -7], dtype), np.array([2, 2, -2, -2], dtype)
    check(mytorch.div, torch.div, x, y, rounding_mode=mode)


@pytest.mark.parametrize("alpha", [2, -0.5])
def test_alpha(alpha):
    x, y = array(-3, 3)((2, 3)), array(-3, 3)((3,))
    check(mytorch.add, torch.add, x, y, alpha=alpha)
    check(mytorch.sub, torch.sub, x, y, alpha=alpha)


BOUNDS = [(-1, 1), (None, 0.5), (-0.5, None), (1, -1), (0, 2)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_clamp_with_numbers(bounds):
    x = np.array([-2, -1, -0.5, 0, 0.5, 1, 2, np.nan], "float32")
    check(mytorch.clamp, torch.clamp, x, *bounds)
    check(lambda a: a.clamp(min=bounds[0], max=bounds[1]), lambda a: a.clamp(min=bounds[0], max=bounds[1]), x)
    check(mytorch.clamp, torch.clamp, np.arange(-3, 4), *bounds)


def test_clamp_with_tensors():
    x = array(-3, 3)((4, 5))
    low, high = array(-2, 0)((5,)), array(-1, 2)((4, 1))
    check(mytorch.clamp, torch.clamp, x, low, high)
    check(mytorch.clamp, torch.clamp, x, low)


def test_where():
    condition = rng.random((3, 4)) < 0.5
    x, y = array(-1, 1)((4,)), array(-1, 1)((3, 1))
    check(mytorch.where, torch.where, condition, x, y)
    check(mytorch.where, torch.where, condition, x, 0.0)
    check(mytorch.where, torch.where, condition, 1, y)
    check(mytorch.where, torch.where, condition, 1.0, 0.0)
    check(mytorch.where, torch.where, condition, np.arange(4), y)
    fails_alike(mytorch.where, torch.where, x, x, x, match="bool")


FAILS = {
    "shapes": (lambda t, a, b: a + b, (np.ones((2, 3)), np.ones((2, 4))), "broadcast"),
    "integer division by zero": (lambda t, a, b: a // b, (np.ones(2, int), np.array([1, 0])), "zero"),
    "remainder by zero": (lambda t, a: a % 0, (np.ones(2, int),), "zero"),
    "negative integer power": (lambda t, a: a ** -1, (np.arange(3),), "negative integer powers"),
    "bool minus bool": (lambda t, a: a - a, (np.array([True]),), "bool"),
    "negative bool": (lambda t, a: -a, (np.array([True]),), "bool"),
    "unknown rounding": (lambda t, a: t.div(a, a, rounding_mode="up"), (np.ones(2),), "'up'"),
    "float in place into int": (lambda t, a: a.add_(0.5), (np.arange(3),), "float32.*int64"),
    "in place into a smaller shape": (
        lambda t, a, b: a.add_(b), (np.ones(3), np.ones((2, 3))), r"\(2, 3\).*\(3,\)",
    ),
    "a string": (lambda t, a: t.add(a, "x"), (np.ones(2),), "str"),
    "an operator with a string": (lambda t, a: a + "x", (np.ones(2),), "str"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILS)
def test_wrong_calls_raise_as_in_pytorch(name):
    function, arrays, match = FAILS[name]
    fails_alike(lambda *a: function(mytorch, *a), lambda *a: function(torch, *a), *arrays, match=match)


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"isnan", "isinf", "isfinite", "logical_not"}))
def test_unary_gradients_numerically(name):
    low, high = UNARY[name]
    assert gradcheck(getattr(mytorch, name), Tensor(rng.uniform(low, high, (2, 3)), requires_grad=True))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum"])
def test_binary_gradients_numerically(name):
    a, b, c, d = BINARY[name]
    x = Tensor(rng.uniform(a, b, (2, 1, 3)), requires_grad=True)
    y = Tensor(rng.uniform(c, d, (2, 1)), requires_grad=True)
    assert gradcheck(getattr(mytorch, name), (x, y))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_two_shapes_that_broadcast(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    other = data.draw(broadcastable_shapes(shape, max_dims=4, max_side=3))
    name = data.draw(st.sampled_from(["add", "mul", "div", "maximum"]))
    x, y = array(-2, 2)(shape), array(0.5, 2)(other)
    check(getattr(mytorch, name), getattr(torch, name), x, y)


IN_PLACE = [
    "neg_", "exp_", "sqrt_", "sigmoid_", "relu_", "add_", "mul_", "clamp_", "zero_", "fill_", "pow_", "div_",
    "floor_", "sub_",
]  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms(name):
    x, y = array(0.5, 2)((3, 4)), array(0.5, 2)((4,))
    arguments = {
        "add_": (y,), "mul_": (y,), "pow_": (y,), "div_": (y,), "sub_": (y,),
        "clamp_": (0.7, 1.5), "fill_": (2.5,),
    }  # fmt: skip

    def program(a, *rest):
        b = a * 1.0
        c = getattr(b, name)(*rest)
        assert c is b
        return b * b

    check(program, program, x, *arguments.get(name, ()))


def test_operators_in_place_keep_the_tensor():
    x = Tensor([1.0, 2.0])
    before = x
    x += 1
    x *= 2
    x -= Tensor([1.0, 1.0])
    x /= 3
    x **= 2
    assert x is before
    same(x, ((torch.tensor([1.0, 2.0]) + 1) * 2 - 1).div(3) ** 2)


def test_numpy_arrays_and_arrays_are_constants():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * mytorch.Array([3.0, 4.0]) + np.ones(2, "float32")
    y.backward(np.ones(2))
    assert y.tolist() == [4, 9] and x.grad.tolist() == [3, 4]
