"""Choosing and replacing by masks against PyTorch."""

import numpy as np
import pytest

from tests.each import each
from tests.oracle import LAYOUTS, check, fails_alike, in_both

rng = np.random.default_rng(0)


def numbers(shape, dtype="float32"):
    return np.asarray(rng.uniform(-9, 9, shape), dtype)


# name: (shapes of the float inputs, the call with either library as F)
CASES = {
    "where": ([(3, 4), (3, 4)], lambda F, x, y: F.where(x > y, x, y)),
    "where broadcast": ([(3, 1), (4,)], lambda F, x, y: F.where(F.tensor([[True], [False]])[:, None], x, y)),
    "where number": ([(3, 4)], lambda F, x: F.where(x > 0, x, 0)),
    "where numbers": ([(3, 4)], lambda F, x: F.where(x > 0, 1, 0.0)),
    "where 0-d": ([(), (3,)], lambda F, x, y: F.where(F.tensor(True), x, y)),
    "where method": ([(3, 4), (4,)], lambda F, x, y: x.where(x > 0, y)),
    "where empty": ([(0, 4), (4,)], lambda F, x, y: F.where(x > 0, x, y)),
    "masked_fill": ([(3, 4)], lambda F, x: F.masked_fill(x, x > 0, -1)),
    "masked_fill -inf": ([(3, 4)],
        lambda F, x: x.masked_fill(F.tensor([True, False, True, False]), float("-inf"))),
    "masked_fill broadcast": ([(4,)], lambda F, x: x.masked_fill(F.ones(3, 4) > 0, 2)),
    "masked_fill tensor": ([(3, 4), ()], lambda F, x, y: x.masked_fill(x > 0, y)),
    "masked_fill 0-d": ([()], lambda F, x: x.masked_fill(F.tensor(True), 1)),
    "masked_fill_": ([(3, 4), ()], lambda F, x, y: (x * 2).masked_fill_(x > 0, y)),
    "masked_select": ([(3, 4)], lambda F, x: F.masked_select(x, x > 0)),
    "masked_select broadcast": ([(3, 4)], lambda F, x: x.masked_select(F.tensor([True, False, True, False]))),
    "masked_select broadcast input": ([(4,)],
        lambda F, x: x.masked_select(F.tensor([[True], [False], [True]]))),
    "masked_select 0-d": ([()], lambda F, x: x.masked_select(F.tensor(True))),
    "masked_scatter": ([(3, 4), (3, 4)], lambda F, x, y: F.masked_scatter(x, x > 0, y)),
    "masked_scatter broadcast": ([(4,), (3, 5)],
        lambda F, x, y: x.masked_scatter(F.tensor([[True], [False], [True]]), y)),
    "masked_scatter nothing": ([(3, 4), (0,)], lambda F, x, y: x.masked_scatter(x > 99, y)),
    "masked_scatter_": ([(3, 4), (12,)], lambda F, x, y: (x * 2).masked_scatter_(x > 0, y)),
    "isin": ([(3, 4)], lambda F, x: F.isin(x, x[0])),
    "isin number": ([(3, 4)], lambda F, x: F.isin(x.long(), 3)),
    "isin invert": ([(3, 4), (5,)], lambda F, x, y: F.isin(x.long(), y.long(), invert=True)),
    "where uint8": ([(3, 4)], lambda F, x: F.where((x > 0).to(F.uint8), x, 0)),
    "nonzero": ([(3, 4)], lambda F, x: F.nonzero(x > 0)),
    "nonzero 0-d": ([()], lambda F, x: x.nonzero()),
    "nonzero of 0": ([()], lambda F, x: (x * 0).nonzero()),
    "nonzero empty": ([(0, 3)], lambda F, x: x.nonzero()),
    "nonzero as_tuple": ([(3, 4)], lambda F, x: F.nonzero(x > 0, as_tuple=True)),
    "nonzero as_tuple 0-d": ([()], lambda F, x: x.nonzero(as_tuple=True)),
    "where alone": ([(3, 4)], lambda F, x: F.where(x > 0)),
    "argwhere": ([(3, 4)], lambda F, x: F.argwhere(x > 0)),
}


@each("layout", ["contiguous", "reversed"])
@each("case", CASES)
def test_against_pytorch(case, layout):
    shapes, call = CASES[case]
    check(*in_both(call), *(LAYOUTS[layout](numbers(shape)) for shape in shapes))


@each("dtype", ["float64", "float16", "int64", "int32"])
@each("case", [name for name in CASES if name != "masked_fill -inf"])
def test_dtypes(case, dtype):
    shapes, call = CASES[case]
    check(*in_both(call), *(numbers(shape, dtype) for shape in shapes))


ERRORS = {
    "where half": (lambda F, x: F.where(x > 0, x), "both input and other"),
    "where int": (lambda F, x: F.where(x, x, x), "bool tensor, got float32"),
    "where shapes": (lambda F, x: F.where(x > 0, F.ones(3), x), "3"),
    "masked_fill int": (lambda F, x: x.masked_fill(x.long(), 0), "bool tensor, got int64"),
    "masked_fill 1-d": (lambda F, x: x.masked_fill(x > 0, F.ones(1)), r"0-d tensor, got shape \(1,\)"),
    "masked_fill text": (lambda F, x: x.masked_fill(x > 0, "a"), "got str"),
    "masked_fill half": (lambda F, x: x.half().masked_fill(x > 0, -1e9), r"-1000000000.0 .* float16"),
    "masked_fill complex": (lambda F, x: x.masked_fill(x > 0, 1j), r"1j .* float32"),
    "masked_fill uint8": (lambda F, x: x.abs().to(F.uint8).masked_fill(x > 0, 300), r"300 .* uint8"),
    "masked_fill_ larger": (lambda F, x: x[0].masked_fill_(x > 0, 0), r"\[4\] doesn't match .*\[3, 4\]"),
    "isin of bools": (lambda F, x: F.isin(x > 0, x), "bool|Bool"),
    "isin for a bool": (lambda F, x: F.isin(x, True), "bool|Bool"),
    "masked_select int": (lambda F, x: x.masked_select(x.long()), "bool tensor, got int64"),
    "masked_select shapes": (lambda F, x: x.masked_select(F.tensor([True, False])), r"\[3, 4\] and \[2\]"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, match = ERRORS[case]
    fails_alike(*in_both(call), numbers((3, 4)), match=match)
