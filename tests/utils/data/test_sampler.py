"""Samplers: every index once, and the same order for the same seed and epoch."""

from collections import Counter

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data
from tests.every import every
from tests.utils.data.datasets import seeded_generator

SHUFFLING = {
    "all": lambda g=None: data.RandomSampler(range(20), generator=g),
    "more than all": lambda g=None: data.RandomSampler(range(20), num_samples=50, generator=g),
    "some": lambda g=None: data.RandomSampler(range(20), num_samples=7, generator=g),
    "replacement": lambda g=None: data.RandomSampler(range(20), True, generator=g),
    "subset": lambda g=None: data.SubsetRandomSampler([3, 5, 8, 13, 21, 34, 55], g),
    "weighted": lambda g=None: data.WeightedRandomSampler([1, 2, 3, 4], 30, generator=g),
    "weighted, once": lambda g=None: data.WeightedRandomSampler(range(20), 15, False, generator=g),
}


@pytest.mark.parametrize("name", SHUFFLING)
def test_the_order_is_a_function_of_seed_and_epoch(name):
    make = SHUFFLING[name]
    sampler = make(seeded_generator(3))
    epochs = [list(sampler) for _ in range(3)]
    assert every(len(order) == len(sampler) for order in epochs)
    assert every(type(i) is int for i in epochs[0])
    assert epochs[0] != epochs[1] != epochs[2]
    later = make(seeded_generator(3))
    later.set_epoch(2)
    assert list(later) == epochs[2]
    assert later.epoch == 3
    assert list(make(seeded_generator(4))) != epochs[0]


@pytest.mark.parametrize("name", SHUFFLING)
def test_the_seed_comes_from_a_generator(name):
    make = SHUFFLING[name]
    assert list(make(seeded_generator(5))) == list(make(seeded_generator(5)))
    one = seeded_generator(5)
    assert list(make(one)) != list(make(one))
    mytorch.manual_seed(8)
    orders = [list(make()), list(make())]
    mytorch.manual_seed(8)
    assert [list(make()), list(make())] == orders


def test_a_pass_that_was_broken_off_counts():
    sampler = data.RandomSampler(range(100), generator=seeded_generator(0))
    first = iter(sampler)
    start = [next(first) for _ in range(10)]
    second = list(sampler)
    whole = data.RandomSampler(range(100), generator=seeded_generator(0))
    assert list(whole)[:10] == start and list(whole) == second


def test_random_sampler_covers_all():
    sampler = data.RandomSampler(range(20), generator=seeded_generator(1))
    assert sorted(sampler) == list(range(20)) and len(sampler) == 20
    count = Counter(data.RandomSampler(range(20), num_samples=50, generator=seeded_generator(1)))
    assert sum(count.values()) == 50 and set(count.values()) == {2, 3}
    drawn = Counter(data.RandomSampler(range(5), True, 10_000, generator=seeded_generator(1)))
    assert set(drawn) == set(range(5)) and max(drawn.values()) - min(drawn.values()) < 300
    growing = []
    sampler = data.RandomSampler([0], generator=seeded_generator(0))
    sampler.data_source = growing
    growing += [1, 2, 3]
    assert sorted(sampler) == [0, 1, 2]


def test_subset_random_sampler():
    sampler = data.SubsetRandomSampler([3, 5, 8], generator=seeded_generator(0))
    assert sorted(sampler) == [3, 5, 8] and len(sampler) == 3
    assert list(data.SubsetRandomSampler([])) == []


def test_weighted_random_sampler():
    count = Counter(data.WeightedRandomSampler([0, 1, 3], 8000, generator=seeded_generator(0)))
    assert set(count) == {1, 2} and count[2] / count[1] == pytest.approx(3, rel=0.1)
    once = data.WeightedRandomSampler([1, 0, 2, 5], 3, False, generator=seeded_generator(0))
    assert sorted(once) == [0, 2, 3]


def test_sequential_sampler():
    assert list(data.SequentialSampler("abc")) == [0, 1, 2] and len(data.SequentialSampler("abc")) == 3


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("batch_size", [1, 3, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_sampler(size, batch_size, drop_last):
    ours = data.BatchSampler(range(size), batch_size, drop_last)
    theirs = torch.utils.data.BatchSampler(range(size), batch_size, drop_last)
    assert list(ours) == list(theirs) and len(ours) == len(theirs)


def test_batch_sampler_hands_the_epoch_on():
    batches = data.BatchSampler(data.RandomSampler(range(20), generator=seeded_generator(0)), 5, False)
    first, second = list(batches), list(batches)
    assert first != second
    batches.set_epoch(0)
    assert list(batches) == first
    data.BatchSampler([1, 2], 1, False).set_epoch(3)  # a list has no epochs


WRONG = {
    "num_samples": (
        lambda m: m.RandomSampler([1, 2], num_samples=0),
        "num_samples should be a positive integer",
    ),
    "nothing": (lambda m: m.RandomSampler([]), "but got num_samples=0"),
    "replacement": (lambda m: m.RandomSampler([1], replacement=1), "replacement should be a boolean value"),
    "batch_size": (lambda m: m.BatchSampler([1], 0, False), "batch_size should be a positive integer value"),
    "batch_size float": (lambda m: m.BatchSampler([1], 2.0, False), "but got batch_size=2.0"),
    "batch_size bool": (lambda m: m.BatchSampler([1], True, False), "but got batch_size=True"),
    "drop_last": (lambda m: m.BatchSampler([1], 2, None), "drop_last should be a boolean value"),
    "weights 2-d": (lambda m: m.WeightedRandomSampler([[1.0]], 1), r"weights have shape \(1, 1\)"),
    "weighted count": (lambda m: m.WeightedRandomSampler([1.0], -1), "but got num_samples=-1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    make, message = WRONG[case]
    with pytest.raises((ValueError, TypeError)) as expected:
        make(torch.utils.data)
    with pytest.raises(expected.type, match=message):
        make(data)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [1.0, np.inf]])
def test_impossible_weights(weights):
    with pytest.raises(ValueError, match="finite, not negative and not all zero"):
        data.WeightedRandomSampler(weights, 1)


def test_too_few_weights():
    with pytest.raises(ValueError, match="can't draw 3 samples without replacement from 2 weights above 0"):
        data.WeightedRandomSampler([1, 0, 2], 3, replacement=False)
