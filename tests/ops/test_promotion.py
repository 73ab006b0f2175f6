"""Dtypes of results, values and refusals for all pairs of dtypes and kinds of operands, against PyTorch."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mytorch
from tests.each import each
from tests.oracle import same

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
VALUES = {"b": [True, False, True], "u": [0, 7, 200], "i": [3, -5, 100], "f": [0.0, 1.5, -2.5]}
PYTHON = [True, False, 2, -3, 300, 0, -1, 2.5, 0.5, 0.0]
BOTH = """
    add sub mul div floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2 copysign xlogy
    hypot logaddexp eq lt ge logical_and logical_xor bitwise_and bitwise_xor bitwise_left_shift
    bitwise_right_shift clamp_min clamp_max rsub isclose where addcmul addcdiv lerp
""".split()  # noqa: SIM905
ROUNDING = {"float16": (5e-3, 5e-3), "float32": (2e-5, 2e-6), "float64": (1e-10, 1e-12)}


@st.composite
def operands(draw):
    """(dtype, has it dims) for a tensor, or a Python number."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(PYTHON))
    return draw(st.sampled_from(DTYPES)), draw(st.booleans())


def make(F, operand):
    if not isinstance(operand, tuple):
        return operand
    dtype, dims = operand
    values = VALUES[np.dtype(dtype).kind]
    return F.tensor(values if dims else values[1], dtype=getattr(F, dtype))


def apply(F, name, x, y):
    if name == "where":
        return F.where(F.tensor([True, False, True]), x, y)
    if name == "lerp":
        return F.lerp(x, y, 0.3)
    if name.startswith("addc"):
        return getattr(F, name)(x, y, y, value=2)
    return getattr(F, name)(x, y)


def agree(call, x, y):
    """Both give the same, or both refuse with the same kind of error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = call(torch, make(torch, x), make(torch, y))
    except (RuntimeError, TypeError) as error:
        refusal = RuntimeError if isinstance(error, RuntimeError) else TypeError
        with pytest.raises((refusal, TypeError)):  # that a number is no tensor, we may say in the first place
            call(mytorch, make(mytorch, x), make(mytorch, y))
        return
    same(call(mytorch, make(mytorch, x), make(mytorch, y)), want, *ROUNDING.get(str(want.dtype)[6:], (0, 0)))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(BOTH), operands(), operands())
@example("add", ("uint8", True), 300)
@example("pow", ("int8", True), ("int8", True))
@example("floor_divide", ("float16", True), 0)
@example("xlogy", ("float16", True), 2)
def test_functions(name, x, y):
    if isinstance(x, tuple) or isinstance(y, tuple):
        agree(lambda F, a, b: apply(F, name, a, b), x, y)


IN_PLACE = """
    add sub mul div floor_divide remainder fmod pow float_power atan2 copysign xlogy eq logical_and
    bitwise_and
"""


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(IN_PLACE.split()), operands(), operands())
@example("add", ("bool", True), 1)
@example("div", ("int64", True), 2)
@example("float_power", ("float32", True), 2)
def test_in_place(name, x, y):
    if isinstance(x, tuple):
        agree(lambda F, a, b: getattr(a, f"{name}_")(b), x, y)


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b, "<": lambda a, b: a < b,
    "!=": lambda a, b: a != b,
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(OPERATORS)), operands(), operands())
def test_operators(name, x, y):
    if isinstance(x, tuple) or isinstance(y, tuple):
        agree(lambda F, a, b: OPERATORS[name](a, b), x, y)


@settings(max_examples=300, deadline=None)
@given(operands(), operands())
def test_result_type(x, y):
    want = torch.result_type(make(torch, x), make(torch, y))
    assert mytorch.result_type(make(mytorch, x), make(mytorch, y)) == str(want)[6:]


@pytest.mark.parametrize("source", DTYPES)
def test_can_cast_and_promote_types(source):
    for target in DTYPES:
        pair, theirs = (
            [getattr(mytorch, d) for d in (source, target)],
            [getattr(torch, d) for d in (source, target)],
        )
        assert mytorch.can_cast(*pair) == torch.can_cast(*theirs)
        assert mytorch.promote_types(*pair) == str(torch.promote_types(*theirs))[6:]


UNARY = """
    abs neg exp sqrt square reciprocal sin sigmoid erf floor round trunc frac sign positive logit nan_to_num
    isnan signbit logical_not bitwise_not deg2rad relu
""".split()  # noqa: SIM905


@each("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, dtype):
    for dims in (True, False):
        agree(lambda F, a, _: getattr(F, name)(a), (dtype, dims), None)
        if hasattr(torch.Tensor, f"{name}_"):
            agree(lambda F, a, _: getattr(a, f"{name}_")(), (dtype, dims), None)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "true_divide", "floor_divide", "pow", "maximum"]
)
@pytest.mark.parametrize("numbers", [(7, 2), (7, 2.5), (1.5, 2), (True, 3)], ids=str)
def test_of_two_numbers(name, numbers):
    """Arithmetic makes a tensor of them, other functions want one."""
    try:
        want = getattr(torch, name)(*numbers)
    except (TypeError, RuntimeError) as error:
        with pytest.raises(type(error)):
            getattr(mytorch, name)(*numbers)
        return
    got = getattr(mytorch, name)(*numbers)
    assert (got.item(), str(got.dtype), got.shape) == (want.item(), str(want.dtype)[6:], ())
