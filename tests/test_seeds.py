"""A test draws the same numbers, whichever tests ran before it; Hypothesis takes the same examples."""

import random

import hypothesis
import numpy as np
import pytest

rng = np.random.default_rng(5)
FIRST = np.random.default_rng(0).random(3)


@pytest.mark.parametrize("turn", [1, 2])
def test_generators_begin_anew(turn):
    np.testing.assert_array_equal(rng.random(3), FIRST)
    assert random.random() == random.Random(0).random()
    assert np.random.rand() == np.random.RandomState(0).rand()


def test_examples_are_the_same_in_every_run():
    assert hypothesis.settings.default.derandomize and hypothesis.settings.default.deadline is None
