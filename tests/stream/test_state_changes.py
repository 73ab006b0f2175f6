"""A compiled function sees what has changed of all that it uses, or it runs eagerly there."""

import warnings

import pytest

import mytorch
from tests.stream.state_cases import CASES, HERE, VARYING


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mytorch.compile")
        yield


def outcomes(make, compile):
    """What calls before and after the change return."""
    with pytest.MonkeyPatch.context() as patch:
        function, change = make(patch)
        compiled, x, found = compile(function), mytorch.ones(2), []
        try:
            for k in range(5):
                if k == 2:
                    change()
                try:
                    found.append(compiled(x).tolist())
                except RuntimeError as error:
                    found.append(str(error))
                    if "fullgraph=True): state_cases.py:" in str(error):
                        return None
        finally:
            getattr(HERE, "restore", lambda: None)()
        return found


def eager(function):
    return function


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name):
    want = outcomes(CASES[name], eager)
    assert want[1] != want[2] or name == "a constant of math"
    assert outcomes(CASES[name], mytorch.compile) == want
    assert outcomes(CASES[name], lambda f: mytorch.compile(f, fullgraph=True)) in (want, None)


@pytest.mark.parametrize("name", VARYING)
def test_what_may_differ_in_each_call_is_no_program(name):
    with pytest.raises(RuntimeError, match=r"fullgraph=True\): state_cases.py:\d+: a program can't hold"):
        mytorch.compile(VARYING[name], fullgraph=True)(mytorch.ones(2))
