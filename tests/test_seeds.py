"""A test draws the same numbers, whichever tests ran before it; Hypothesis takes the same examples."""

import random

import hypothesis
import numpy as np
import pytest

from tests.each import each

rng = np.random.default_rng(5)
FIRST = np.random.default_rng(0).random(3)


@pytest.mark.parametrize("turn", [1, 2])
def test_generators_begin_anew(turn):
    np.testing.assert_array_equal(rng.random(3), FIRST)
    assert random.random() == random.Random(0).random()
    assert np.random.rand() == np.random.RandomState(0).rand()


@each("number, word", [(1, "a"), (2, "b")])
@pytest.mark.parametrize("whole", [True])
def test_cases_of_one_test_begin_anew(whole, word, number):
    assert whole and (number, word) in [(1, "a"), (2, "b")]
    test_generators_begin_anew(number)


def test_all_cases_that_fail_are_shown():
    @each("number", range(4))
    def test(least, number):
        assert number >= least
        if number == 3:
            pytest.skip("no case may be left out")

    message = r"(?s)^3 of 4 fail.*'number': 0.*: 1.*: 3.*may be left out"
    with pytest.raises(pytest.fail.Exception, match=message):
        test(least=2)


def test_examples_are_the_same_in_every_run():
    assert hypothesis.settings.default.derandomize and hypothesis.settings.default.deadline is None
