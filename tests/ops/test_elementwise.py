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
from tests.each import each
from tests.oracle import check, fails_alike, same

rng = np.random.default_rng(0)

# op: (lowest, highest) input
UNARY = {
    "neg": (-3, 3), "abs": (-3, 3), "exp": (-4, 4), "log": (0.1, 5), "sqrt": (0.1, 5), "rsqrt": (0.1, 5),
    "square": (-3, 3), "reciprocal": (0.2, 3), "sin": (-6, 6), "cos": (-6, 6), "tan": (-1, 1),
    "tanh": (-4, 4), "sigmoid": (-8, 8), "relu": (-3, 3), "sign": (-3, 3), "floor": (-3, 3),
    "ceil": (-3, 3), "round": (-3, 3), "positive": (-3, 3), "isnan": (-3, 3), "isinf": (-3, 3),
    "isfinite": (-3, 3), "logical_not": (-1, 1), "isposinf": (-3, 3), "isneginf": (-3, 3),
    "isreal": (-3, 3), "signbit": (-3, 3), "exp2": (-4, 4), "expm1": (-4, 4), "log2": (0.1, 5),
    "log10": (0.1, 5), "log1p": (-0.9, 5), "sinh": (-4, 4), "cosh": (-4, 4), "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9), "atan": (-4, 4), "asinh": (-4, 4), "acosh": (1.1, 5), "atanh": (-0.9, 0.9),
    "sinc": (-3, 3), "trunc": (-3, 3), "frac": (-3, 3), "logit": (0.1, 0.9), "nan_to_num": (-3, 3),
    "deg2rad": (-200, 200), "rad2deg": (-4, 4),
}
# op: ranges of the two inputs
BINARY = {
    "add": (-3, 3, -3, 3),
    "sub": (-3, 3, -3, 3),
    "mul": (-3, 3, -3, 3),
    "div": (-3, 3, 0.5, 3),
    "pow": (0.2, 3, -2, 2),
    "maximum": (-3, 3, -3, 3),
    "minimum": (-3, 3, -3, 3),
    "remainder": (-5, 5, 0.5, 3),
    "floor_divide": (-5, 5, 0.5, 3),
    "eq": (-1, 1, -1, 1),
    "ne": (-1, 1, -1, 1),
    "lt": (-3, 3, -3, 3),
    "le": (-3, 3, -3, 3),
    "gt": (-3, 3, -3, 3),
    "ge": (-3, 3, -3, 3),
    "logical_and": (-1, 1, -1, 1),
    "logical_or": (-1, 1, -1, 1),
    "logical_xor": (-1, 1, -1, 1),
    "rsub": (-3, 3, -3, 3),
    "fmod": (-5, 5, 0.5, 3),
    "float_power": (0.2, 3, -2, 2),
    "fmax": (-3, 3, -3, 3),
    "fmin": (-3, 3, -3, 3),
    "atan2": (-3, 3, -3, 3),
    "copysign": (-3, 3, -3, 3),
    "xlogy": (-3, 3, 0.5, 3),
    "logaddexp": (-3, 3, -3, 3),
    "logaddexp2": (-3, 3, -3, 3),
    "hypot": (-3, 3, -3, 3),
    "clamp_min": (-3, 3, -3, 3),
    "clamp_max": (-3, 3, -3, 3),
}
FLOATS_ONLY = {"frac", "logaddexp", "logaddexp2", "hypot"}
# No number as the second operand, as in PyTorch.
TENSORS_ONLY = {
    "maximum", "minimum", "fmax", "fmin", "atan2", "logaddexp", "logaddexp2", "hypot", "logical_and",
    "logical_or", "logical_xor",
}
NOT_DIFFERENTIABLE = {"floor_divide"}  # PyTorch records it, and raises in backward
SHAPES = {
    "2-d": lambda a: a((3, 4)), "0-d": lambda a: a(()), "empty": lambda a: a((0, 3)),
    "one": lambda a: a((1,)), "transposed": lambda a: a((4, 3)).T,
    "every other": lambda a: a((3, 8))[:, ::2], "reversed": lambda a: a((3, 4))[::-1, ::-1],
}
PAIRS = [
    ((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (3,)),
    ((3,), ()), ((), ()), ((0, 3), (1, 3)), ((1, 1), (5,)),
]
MIXED = [
    ("float32", "float64"), ("int64", "float32"), ("int32", "int64"), ("uint8", "int8"),
    ("bool", "int64"), ("float16", "float32"), ("int64", "float16"),
]


def array(low, high, dtype="float32"):
    def make(shape):
        if dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype.startswith(("int", "uint")):
            return np.asarray(rng.integers(int(np.ceil(low)), int(high) + 1, shape), dtype)
        return np.asarray(rng.uniform(low, high, shape), dtype)

    return make


def bounds_for(dtype, low, high):
    """Where integers of the dtype are, too: from 0 or 1 on for those without a sign."""
    least = np.ceil(low) if dtype != "uint8" else max(np.ceil(low), 1)
    return (low, high) if dtype.startswith("float") else (least, max(np.floor(high), least))


@each("shape", SHAPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, shape):
    x = SHAPES[shape](array(*UNARY[name]))
    check(getattr(mytorch, name), getattr(torch, name), x)
    if hasattr(torch.Tensor, name):
        check(lambda t: getattr(t, name)(), lambda t: getattr(t, name)(), x)


@each("dtype", ["float64", "float16", "int64", "int32", "uint8", "bool"])
@each("name", UNARY)
def test_unary_dtypes(name, dtype):
    x = array(*bounds_for(dtype, *UNARY[name]), dtype)((3, 4))
    rounding = {"atol": 2e-2} if (name, dtype) == ("sinc", "float16") else {}  # PyTorch's has few digits
    theirs = getattr(torch, name)
    try:
        theirs(torch.from_numpy(x))
    except RuntimeError:  # PyTorch has no such combination: neither may we give a number silently
        with pytest.raises((RuntimeError, TypeError)):
            getattr(mytorch, name)(Tensor(x))
    else:
        check(getattr(mytorch, name), theirs, x, **rounding)


@each("shapes", PAIRS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    a, b, c, d = BINARY[name]
    x, y = array(a, b)(shapes[0]), array(c, d)(shapes[1])
    check(getattr(mytorch, name), getattr(torch, name), x, y, grad=name not in NOT_DIFFERENTIABLE)


@each("dtypes", MIXED)
@each("shapes", [((3,), (3,)), ((3,), ()), ((), (3,))])
@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "lt", "sub", "floor_divide", "remainder"])
def test_mixed_dtypes_promote_as_in_pytorch(name, shapes, dtypes):
    x, y = array(1, 3, dtypes[0])(shapes[0]), array(1, 3, dtypes[1])(shapes[1])
    if dtypes[0] == "bool":
        if name == "sub":
            return fails_alike(mytorch.sub, torch.sub, x, y, match="bool")
        x = np.ones_like(x)
    ours, theirs, grad = getattr(mytorch, name), getattr(torch, name), name not in NOT_DIFFERENTIABLE
    # Of the sum for the 0-d gradient, which is made in the narrower dtype.
    rounding = {"float16": {"rtol": 5e-3, "atol": 5e-3}, "float64": {"rtol": 2e-5, "atol": 2e-6}}
    rounding = next((rounding[d] for d in rounding if d in dtypes), {})
    for pair in ((x, y), (y, x)):
        check(ours, theirs, *pair, grad=grad, **rounding)


@each("number", [2, 2.5, True, np.float64(2.5), np.int32(2)])
@each("dtype", ["float32", "float16", "int64", "int32", "uint8", "float64"])
@each("operator", ["+", "-", "*", "/", "//", "%", "**", "<", "==", "&"])
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
        )


def check_refused(function, x):
    with pytest.raises((TypeError, RuntimeError)):
        function(Tensor(x))


# Signed zeros, kinks, poles, ties of rounding, numbers that overflow, subnormal ones, and no numbers at all.
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 2, 0.5, -0.5, 1.5, -2.5, 100, -100, 1e-30, 1e-42, -1e-42, 1e30, -1e30, np.inf, -np.inf,
     np.nan]
)


@each("dtype", ["float32", "float64"])
@each("name", UNARY)
def test_special_values(name, dtype):
    """Values and gradients."""
    x = SPECIAL
    if name in ("sin", "cos", "tan", "sinc"):  # of huge angles PyTorch itself is not sure
        x = x[~((np.abs(x) > 1e20) & (np.abs(x) < np.inf))]
    if name == "logit":  # nor, in long arrays and short ones, of the gradient at -0.0
        x = x[~((x == 0) & np.signbit(x))]
    check(getattr(mytorch, name), getattr(torch, name), x.astype(dtype))


@each("dtype", ["float32", "float64"])
@each("name", BINARY)
def test_special_pairs(name, dtype):
    """Each special value with each."""
    x = SPECIAL
    if name in ("hypot", "remainder", "fmod"):  # PyTorch has few digits there, or NaN
        x = x[(np.abs(x) != 1e-42) & (x != 1e-30)]
    pair = np.repeat(x, len(x)).astype(dtype), np.tile(x, len(x)).astype(dtype)
    check(getattr(mytorch, name), getattr(torch, name), *pair, grad=name not in NOT_DIFFERENTIABLE)


@each("number", [0.0, -0.0, 1.0, -1.0, 2, 2.5, np.inf, np.nan])
@each("name", ["pow", "div", "remainder", "fmod", "mul", "copysign", "xlogy", "clamp_min"])
def test_special_values_and_numbers(name, number):
    x = SPECIAL.astype("float32")
    if name in ("remainder", "fmod"):  # as above
        x = x[~((np.abs(x) > 1e20) & (np.abs(x) < np.inf)) & (np.abs(x) > 1e-20)]
    function = (lambda a: getattr(mytorch, name)(a, number)), (lambda a: getattr(torch, name)(a, number))
    check(
        *function, x, grad=name != "xlogy" or number == number
    )  # NaN as a number isn't as in a tensor there
    if name in ("pow", "div", "remainder", "xlogy"):
        function = (lambda a: getattr(mytorch, name)(number, a)), (lambda a: getattr(torch, name)(number, a))
        check(*function, x, grad=name != "remainder")  # PyTorch has none there


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


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_three_operands(dtype):
    rounding = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {}
    x, y = array(-3, 3, dtype)((2, 3)), array(-3, 3, dtype)((3,))
    z, weight = array(0.5, 2, dtype)((2, 1)), array(-0.5, 1.5, dtype)((2, 3))
    for value in (1, -2, 0.5):
        check(mytorch.addcmul, torch.addcmul, x, y, z, value=value, **rounding)
        check(mytorch.addcdiv, torch.addcdiv, x, y, z, value=value, **rounding)
        exact = {"alpha": np.float64(value)}  # whose dtype is not the result's
        assert mytorch.add(Tensor(x), Tensor(y), **exact).dtype == x.dtype
    check(mytorch.lerp, torch.lerp, x, y, weight, **rounding)
    for number in (0.0, 0.3, 0.5, 1.0, 2):
        check(mytorch.lerp, torch.lerp, x, y, number, **rounding)
    assert (
        mytorch.lerp(Tensor(x), Tensor(y) + 0 * Tensor(x), 1.0).tolist()
        == np.broadcast_to(y, (2, 3)).tolist()
    )


def test_three_operands_of_mixed_dtypes():
    x, y, z = np.arange(3), array(-3, 3)((3,)), array(0.5, 2, "float64")(())
    check(mytorch.addcmul, torch.addcmul, x, y, z, value=3, rtol=1e-5)
    check(mytorch.addcdiv, torch.addcdiv, x, y, z, value=3, rtol=1e-5)
    check(mytorch.addcmul, torch.addcmul, x, x, x, value=3)


def test_logit_with_eps():
    x = np.array([-1, 0, 0.1, 0.2, 0.5, 0.8, 0.9, 1, 2, np.nan], "float32")
    for eps in (None, 0.0, 0.2, 0.9):
        check(mytorch.logit, torch.logit, x, eps)
        check(mytorch.logit, torch.logit, x, eps=eps)


def test_nan_to_num_with_numbers():
    for dtype in ("float32", "float16", "int64"):
        x = SPECIAL.astype(dtype) if dtype != "int64" else np.arange(3)
        for numbers in ((), (1.5,), (1.5, 2.5), (None, 1e50, -3), (np.inf, np.nan, -1e50)):
            check(mytorch.nan_to_num, torch.nan_to_num, x, *numbers)
    check(lambda a: a.nan_to_num(posinf=1.0), lambda a: a.nan_to_num(posinf=1.0), SPECIAL)


def test_keywords_are_those_of_pytorch():
    x, y, z = array(0.5, 2)((3,)), array(0.5, 2)((3,)), array(0.5, 2)((3,))
    for call in (
        lambda t, a, b, c: t.add(input=a, other=b, alpha=2), lambda t, a, b, c: a.mul(other=b),
        lambda t, a, b, c: t.div(input=a, other=b, rounding_mode="floor"), lambda t, a, b, c: t.exp(input=a),
        lambda t, a, b, c: t.pow(a, exponent=b), lambda t, a, b, c: t.lerp(input=a, end=b, weight=c),
        lambda t, a, b, c: t.addcmul(a, tensor1=b, tensor2=c, value=2), lambda t, a, b, c: a.clamp(max=b),
        lambda t, a, b, c: t.clamp_min(input=a, min=b), lambda t, a, b, c: t.rsub(input=a, other=b),
        lambda t, a, b, c: t.where(condition=a > b, input=a, other=c), lambda t, a, b, c: t.atan2(a, other=b),
        lambda t, a, b, c: t.float_power(input=a, exponent=2), lambda t, a, b, c: t.logit(a / 3, eps=0.1),
    ):
        check(lambda *xs, call=call: call(mytorch, *xs), lambda *xs, call=call: call(torch, *xs), x, y, z)


@each("name", mytorch.ops.aliases.__all__)
def test_second_names_and_in_place_functions(name):
    x, y = array(0.6, 0.9)((3,)), array(0.6, 0.9)((3,))
    pairs = (
        "less",
        "greater",
        "not_equal",
        "multiply",
        "subtract",
        "divide",
        "true_divide",
        "arctan2",
        "xlogy",
    )
    more = {"clamp": (0.7, 0.8), "clip": (0.7, 0.8), "clamp_min": (0.7,), "clamp_max": (0.7,), "fill": (2.5,)}
    rest = (y,) if name.startswith(pairs) else more.get(name.removesuffix("_"), ())
    x = x + 1 if name.startswith(("acosh", "arccosh")) else x

    def check_call(call, grad):
        check(lambda *xs: call(mytorch, *xs), lambda *xs: call(torch, *xs), x, *rest, grad=grad)

    in_place = name if name.endswith("_") else f"{name}_"
    no_gradient = in_place.endswith(("sinh_", "cosh_", "tanh_")) and in_place[0] == "a"  # PyTorch has none
    no_gradient = no_gradient or name.startswith(("less", "greater", "not_equal"))
    if hasattr(torch, name):
        check_call(lambda t, a, *more: getattr(t, name)(a * 1, *more), not (no_gradient and name == in_place))
    check_call(lambda t, a, *more: getattr(a * 1, in_place)(*more), not no_gradient)


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
    corners = np.array(np.meshgrid(*[[0, 1, 2, np.nan]] * 3)).reshape(3, -1)
    check(mytorch.clamp, torch.clamp, *corners)
    check(mytorch.clamp_min, torch.clamp_min, *corners[:2])
    check(mytorch.clamp_max, torch.clamp_max, *corners[:2])
    check(mytorch.clamp, torch.clamp, np.arange(3), np.array(0.5), np.array(2))


def test_where():
    condition = rng.random((3, 4)) < 0.5
    x, y = array(-1, 1)((4,)), array(-1, 1)((3, 1))
    check(mytorch.where, torch.where, condition, x, y)
    check(mytorch.where, torch.where, condition, x, 0.0)
    check(mytorch.where, torch.where, condition, 1, y)
    check(mytorch.where, torch.where, condition, 1.0, 0.0)
    check(mytorch.where, torch.where, condition, np.arange(4), y)
    check(mytorch.where, torch.where, condition, np.array(1.5), 2)
    check(mytorch.where, torch.where, condition, x, np.array(1, "float64"), rtol=1e-5)
    check(mytorch.where, torch.where, condition)
    check(mytorch.where, torch.where, condition.astype("uint8"), x, y)
    check(lambda c, a: a.where(c, 2), lambda c, a: a.where(c, 2), condition, x)
    fails_alike(mytorch.where, torch.where, x, x, x, match="bool")
    fails_alike(mytorch.where, torch.where, condition, x, match="input|where")
    fails_alike(mytorch.where, torch.where, condition, np.ones((3, 4), "uint8"), 300, match="300|uint8_t")


FAILS = {
    "shapes": (lambda t, a, b: a + b, (np.ones((2, 3)), np.ones((2, 4))),
        r"tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1"),
    "integer division by zero": (lambda t, a, b: a // b, (np.ones(2, int), np.array([1, 0])), "zero"),
    "remainder by zero": (lambda t, a: a % 0, (np.ones(2, int),), "zero"),
    "negative integer power": (lambda t, a: a ** -1, (np.arange(3),), "negative integer powers"),
    "bool minus bool": (lambda t, a: a - a, (np.array([True]),), "bool"),
    "negative bool": (lambda t, a: -a, (np.array([True]),), "bool"),
    "unknown rounding": (lambda t, a: t.div(a, a, rounding_mode="up"), (np.ones(2),), "'up'"),
    "float in place into int": (lambda t, a: a.add_(0.5), (np.arange(3),), "float32.*int64"),
    "in place into a smaller shape": (
        lambda t, a, b: a.add_(b), (np.ones(3), np.ones((2, 3))),
        r"shape \[3\] doesn't match the broadcast shape \[2, 3\]",
    ),
    "floored bool": (lambda t, a: t.floor(a), (np.array([True]),), "bool"),
    "size of a bool": (lambda t, a: abs(a), (np.array([True]),), "bool"),
    "fraction of an integer": (lambda t, a: t.frac(a), (np.arange(3),), "int64"),
    "bool division": (lambda t, a: a // a, (np.array([True]),), "bool"),
    "bool remainder": (lambda t, a: a % a, (np.array([True]),), "bool"),
    "bool power": (lambda t, a: a**a, (np.array([True]),), "bool"),
    "power out of range": (lambda t, a: a**300, (np.ones(2, "uint8"),), "300.*uint8|uint8_t"),
    "fmod by zero": (lambda t, a: t.fmod(a, a), (np.zeros(2, int),), "zero"),
    "div by zero": (lambda t, a: t.div(a, 0, rounding_mode="trunc"), (np.ones(2, int),), "zero"),
    "floor by zero": (lambda t, a: t.div(a, 1 - a, rounding_mode="floor"), (np.ones(2, int),), "zero"),
    "fraction as alpha": (lambda t, a: t.add(a, a, alpha=0.5), (np.arange(3),), "alpha"),
    "bool as alpha": (lambda t, a: t.sub(a, a, alpha=True), (np.ones(3),), "alpha"),
    "no bounds": (lambda t, a: t.clamp(a), (np.ones(3),), "min and max|'min' or 'max'"),
    "bound out of range": (lambda t, a: t.clamp(a, 0, 300), (np.ones(3, "uint8"),), "300|uint8_t"),
    "clamp of bools": (lambda t, a: t.clamp(a, False, True), (np.array([True]),), "bool|Bool"),
    "lerp of integers": (lambda t, a: t.lerp(a, a, 0.5), (np.arange(3),), "int64"),
    "lerp between dtypes": (lambda t, a, b: t.lerp(a, b, 0.5), (np.ones(3), np.ones(3, "float32")), "end"),
    "lerp by another dtype": (lambda t, a, b: t.lerp(a, a, b), (np.ones(3), np.ones(3, "float32")), "weight"),
    "addcdiv of integers": (lambda t, a, b: t.addcdiv(a, b, b), (np.ones(3), np.arange(3)), "[Ii]nteger"),
    "number instead of a tensor": (lambda t, a: t.maximum(a, 1.0), (np.ones(3),), "float"),
    "number first": (lambda t, a: t.lt(1.0, a), (np.ones(3),), "float"),
    "float_power_ of float32": (lambda t, a: a.float_power_(2), (np.ones(3, "float32"),), "float64|Double"),
    "division in place of integers": (lambda t, a: a.div_(2), (np.arange(3),), "float32.*int64"),
    "number in place into bool": (lambda t, a: a.add_(1), (np.array([True]),), "int64.*bool"),
    "fill with dims": (lambda t, a: a.fill_(a), (np.ones(3),), "0-d|0-dim"),
    "a string": (lambda t, a: t.add(a, "x"), (np.ones(2),), "str"),
    "an operator with a string": (lambda t, a: a + "x", (np.ones(2),), "str"),
}


@pytest.mark.parametrize("name", FAILS)
def test_wrong_calls_raise_as_in_pytorch(name):
    function, arrays, match = FAILS[name]
    fails_alike(lambda *a: function(mytorch, *a), lambda *a: function(torch, *a), *arrays, match=match)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_no_integers_divided_by_zero(name):
    x, zeros = np.ones((0, 3), int), np.zeros((1, 3), int)
    for arrays in ((x, zeros), (zeros, x), (x.astype(bool), zeros)):
        check(getattr(mytorch, name), getattr(torch, name), *arrays)
    check(lambda a: getattr(mytorch, name)(a, 0), lambda a: getattr(torch, name)(a, 0), x)


TRUTH = {"isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "signbit", "logical_not"}


@pytest.mark.parametrize("name", sorted(set(UNARY) - TRUTH))
def test_unary_gradients_numerically(name):
    low, high = UNARY[name]
    assert gradcheck(getattr(mytorch, name), Tensor(rng.uniform(low, high, (2, 3)), requires_grad=True))


@pytest.mark.parametrize(
    "name",
    "add sub mul div pow maximum minimum fmod fmax fmin atan2 copysign xlogy logaddexp hypot".split(),  # noqa: SIM905
)
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
    "floor_", "sub_", "logit_", "exp2_", "fmod_", "remainder_", "copysign_", "xlogy_", "atan2_", "clamp_min_",
    "clamp_max_", "nan_to_num_", "eq_", "logical_not_", "clip_", "multiply_", "less_",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms(name):
    x, y = array(0.5, 2)((3, 4)), array(0.5, 2)((4,))
    arguments = {
        "add_": (y,), "mul_": (y,), "pow_": (y,), "div_": (y,), "sub_": (y,),
        "clamp_": (0.7, 1.5), "fill_": (2.5,), "fmod_": (y,), "remainder_": (y,), "copysign_": (-1.0,),
        "xlogy_": (y,), "atan2_": (y,), "clamp_min_": (1.1,), "clamp_max_": (1.1,), "eq_": (1.0,),
        "clip_": (0.7, 1.5), "multiply_": (y,), "less_": (1.0,),
    }

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
