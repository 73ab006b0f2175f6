"""Loops of programs as Triton kernels; test_kernels.py runs this twice, interpreted and compiled."""

import functools
import os

import numpy as np
import pytest

from mytorch.compiler.codegen.loop import COLUMN, FULL, ROW, Loop, Step
from mytorch.compiler.codegen.triton_source import LONGEST, launched
from tests.compiler.loop_cases import Case, assert_close, cases, every_expression
from tests.triton import interpreter
from tests.triton.compile import compiling

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    interpreter.install()

interpreted = pytest.mark.skipif(not INTERPRETED, reason="compiled")
compiled = pytest.mark.skipif(INTERPRETED, reason="interpreted")
SHORT = {"every expression 0": every_expression(), **cases()}
LONG = {name: case for name, case in cases(3, LONGEST + 100).items() if not case.loop.is_flat}


@interpreted
@pytest.mark.parametrize(("name", "table"), [*[(k, SHORT) for k in SHORT], *[(k, LONG) for k in LONG]])
def test_values(name, table):
    case = table[name]
    assert_close(case.outputs(functools.partial(launched, case.loop)), case.outputs())


@interpreted
def test_more_rows_than_programs():
    """Each of the 1024 that add up columns has several."""
    loop = Loop((FULL,), (Step("sum", ("x0",), COLUMN),), (0,))
    case = Case(loop, 1030, 3, [np.arange(3090, dtype=np.float32)])
    assert_close(case.outputs(functools.partial(launched, loop)), case.outputs())


@interpreted
@pytest.mark.parametrize("n", [100, LONGEST + 100])
def test_the_maximum_of_a_row_with_nan(n):
    loop = Loop((FULL,), (Step("max", ("x0",), ROW), Step("min", ("x0",), ROW)), (0, 1))
    case = Case(loop, 2, n, [np.where(np.arange(2 * n) == 5, np.float32("nan"), 1)])
    for y in case.outputs(functools.partial(launched, loop)):
        np.testing.assert_array_equal(y, [np.nan, 1])


@compiled
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_resources(capability):
    tables = [(n, cases(64, n)) for n in ((1024, LONGEST, LONGEST + 1) if capability == 90 else (LONGEST,))]
    for n, table in [*tables, (0, {"layer norm 0": every_expression()})]:
        for name in table if n == 1024 else ["layer norm 0"]:
            with compiling(capability) as reports:
                table[name].outputs(functools.partial(launched, table[name].loop))
            assert reports and not [(name, n, r, r.problems()) for r in reports if r.problems()]
