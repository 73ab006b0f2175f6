"""Comparisons, logic and bits against PyTorch."""

import itertools

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from tests.each import each
from tests.oracle import check, fails_alike, in_both

SPECIAL = np.array([0.0, -0.0, 1, -1, 1e-9, 1 + 1e-6, 1 + 1e-3, 1e30, np.inf, -np.inf, np.nan])
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
LOGIC = ["logical_and", "logical_or", "logical_xor"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]
INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64"]
NUMBERS = {"b": [True, False, True], "u": [0, 7, 200], "i": [3, -5, 100], "f": [0.0, 1.5, -2.5]}


def numbers(dtype):
    return np.array(NUMBERS[np.dtype(dtype).kind], dtype)


def both(name):
    return getattr(mytorch, name), getattr(torch, name)


def cross(x):
    """Each element with each."""
    return np.repeat(x, len(x)), np.tile(x, len(x))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", COMPARISONS + LOGIC)
def test_special_values(name, dtype):
    check(*both(name), *cross(SPECIAL.astype(dtype)))


@pytest.mark.parametrize("name", COMPARISONS + LOGIC + BITS)
def test_all_integer_dtypes(name):
    for a, b in itertools.product(INTEGERS, INTEGERS):
        check(*both(name), numbers(a), numbers(b))
        check(*both(name), numbers(a), numbers(b)[:1].reshape(()))


@each("name", COMPARISONS + BITS)
@each("number", [2, -1, 300, 1000, True])
@each("dtype", INTEGERS)
def test_numbers_out_of_range_keep_their_low_bits(name, number, dtype):
    x = numbers(dtype)
    check(lambda a: getattr(mytorch, name)(a, number), lambda a: getattr(torch, name)(a, number), x)


def test_fractions_beside_integers():
    for name in COMPARISONS:
        check(
            lambda a, n=name: getattr(mytorch, n)(a, 1.5),
            lambda a, n=name: getattr(torch, n)(a, 1.5),
            np.arange(4),
        )


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("dtype", INTEGERS[1:])
def test_shifts(name, dtype):
    x, y = numbers(dtype), np.array([0, 1, 3], dtype)
    check(*both(name), x, y)
    check(lambda a: getattr(mytorch, name)(a, 2), lambda a: getattr(torch, name)(a, 2), x)
    check(lambda a: (a << 1, a >> 1, 1 << (a & 3)), lambda a: (a << 1, a >> 1, 1 << (a & 3)), x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_operators(dtype):
    x, y = numbers(dtype), numbers(dtype)[::-1]

    def program(a, b):
        return ~a, a & b, a | b, a ^ b, True & a, a == b, a != b, a < b, a <= b, a > b, a >= b

    check(program, program, x, y)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "tolerances",
    [
        {}, {"rtol": 0, "atol": 0}, {"rtol": 0.1, "atol": 1.0}, {"atol": 1e-3},
        {"rtol": 0, "atol": 10.0}, {"rtol": 0.99, "atol": 0},
    ],
    ids=str,
)
@each("equal_nan", [False, True])
def test_isclose(dtype, tolerances, equal_nan):
    x, y = cross(SPECIAL.astype(dtype) if dtype.startswith("float") else numbers(dtype))
    for name in ("isclose", "allclose"):
        call = lambda t, x, y, name=name: getattr(t, name)(x, y, **tolerances, equal_nan=equal_nan)  # noqa: E731
        check(*in_both(call), x, y)
    assert mytorch.allclose(Tensor(x), Tensor(x), equal_nan=True) is True


def test_isclose_broadcasts_and_empty_is_close():
    check(*both("isclose"), np.ones((2, 1)), np.ones(3))
    check(*both("allclose"), np.ones((0, 3)), np.ones(3))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([1, 2], [1, 2]), ([1, 2], [1.0, 2.0]), ([1, 2], [1, 3]), ([1.0, np.nan], [1.0, np.nan]),
        ([1], [[1]]), ([], []), (1, 1), ([1, 1], [1]),
    ],
)
def test_equal(x, y):
    check(*both("equal"), np.array(x), np.array(y))


FAILS = {
    "isclose of two dtypes": (
        lambda t, a, b: t.isclose(a, b), (np.ones(2), np.ones(2, "float32")), "float64.*float32|Double",
    ),
    "negative rtol": (lambda t, a: t.isclose(a, a, rtol=-1), (np.ones(2),), "rtol.*-1"),
    "negative atol": (lambda t, a: t.allclose(a, a, atol=-1.0), (np.ones(2),), "atol.*-1"),
    "isclose to a number": (lambda t, a: t.isclose(a, 1.0), (np.ones(2),), "float"),
    "equal to a number": (lambda t, a: t.equal(a, 1.0), (np.ones(2),), "float"),
    "bits of floats": (lambda t, a: a & a, (np.ones(2),), "float64|Double"),
    "bits of floats turned": (lambda t, a: t.bitwise_not(a), (np.ones(2),), "float64|Double"),
    "~ of floats": (lambda t, a: ~a, (np.ones(2),), "integer"),
    "shift of floats": (lambda t, a: a << 1, (np.ones(2),), "float64|Double"),
    "shift of bools": (lambda t, a: a << a, (np.array([True]),), "bool|Bool"),
    "logic with a number": (lambda t, a: t.logical_and(a, 1), (np.ones(2),), "int"),
    "shapes": (lambda t, a, b: a == b, (np.ones(2), np.ones(3)), "broadcast|size"),
}


@pytest.mark.parametrize("name", FAILS)
def test_wrong_calls_raise_as_in_pytorch(name):
    function, arrays, match = FAILS[name]
    fails_alike(lambda *a: function(mytorch, *a), lambda *a: function(torch, *a), *arrays, match=match)
