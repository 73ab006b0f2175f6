"""Samples are seeded once something is drawn: their numbers are the same as if they always were."""

import random

import numpy as np
import pytest

import mytorch
from mytorch.random import default_generator
from mytorch.utils import data
from mytorch.utils.data.shared_generators import SharedGenerators
from tests.utils.data.datasets import Numbers, within

SIZE = 12


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


def from_all():
    return random.random(), np.random.randn(), mytorch.rand(1).item()


def in_turn(i):
    return (lambda: 0, random.random, np.random.randn, lambda: mytorch.rand(1).item())[i % 4]()


DRAWERS = {
    "nobody": lambda i: 0,
    "all": lambda i: from_all(),
    "the first": lambda i: from_all() if i == 0 else 0,
    "every third": lambda i: random.random() if i % 3 == 1 else 0,
    "in turn": in_turn,
    "from the sixth on": lambda i: np.random.rand() if i > 4 else 0,
    "the last": lambda i: mytorch.rand(1).item() if i == SIZE - 1 else 0,
    "a kernel's seed": lambda i: default_generator().next_seed() if i > 6 else 0,
    "half of a pair": lambda i: (random.gauss(0, 1), np.random.randn()) if i in (7, 8) else 0,
}


def dataset_of(name):
    return Numbers(SIZE, lambda i: (i, DRAWERS[name](i)))


def loader_of(dataset, batch_size=1, collate_fn=list, **options):
    generator = mytorch.Generator().manual_seed(3)
    return data.DataLoader(dataset, batch_size, generator=generator, collate_fn=collate_fn, **options)


def alone(dataset, batch_size=1, **options):
    """Each batch as the first one of a pass, which is always seeded."""
    batches = [[*range(i, i + batch_size)] for i in range(0, SIZE, batch_size)]
    return [next(iter(loader_of(dataset, batch_sampler=[batch], **options))) for batch in batches]


@pytest.mark.parametrize("name", DRAWERS)
def test_a_sample_draws_what_it_draws_alone(name):
    dataset = dataset_of(name)
    want = sum(alone(dataset), [])
    for batch_size in (1, 2, 5):
        batches = [*loader_of(dataset, batch_size)]
        assert sum(batches, []) == want
        position = loader_of(dataset, batch_size)
        next(iter(position))
        resumed = loader_of(dataset, batch_size)
        resumed.load_state_dict(position.state_dict())
        assert [*resumed] == batches[1:]
    for workers in (1, 2):
        assert sum(loader_of(dataset, 2, num_workers=workers), []) == want


@pytest.mark.parametrize("name", DRAWERS)
def test_the_user_s_generators_stay_where_they_are(name):
    def where():
        numpy = np.random.get_state(legacy=False)
        numpy["state"]["key"] = numpy["state"]["key"].tolist()
        return (
            random.getstate(), np.random.get_bit_generator(), numpy, default_generator().get_state().tolist()
        )  # fmt: skip

    for prepare in (lambda: 0, lambda: (random.gauss(0, 1), np.random.randn())):
        random.seed(1), np.random.seed(1), mytorch.manual_seed(1)
        prepare()
        here = where()
        for _ in loader_of(dataset_of(name), 2):
            assert where() == here
            random.random(), np.random.rand(2), mytorch.rand(2)
            here = where()
        assert where() == here


SECOND_LOADINGS = {
    "nobody": [],
    "all": [],
    "the first": [],
    "every third": [],
    "from the sixth on": [4, 5],
    "the last": [10, 11],
    "half of a pair": [6, 7],
}


@pytest.mark.parametrize("name", SECOND_LOADINGS)
def test_one_batch_at_most_is_loaded_twice(name, monkeypatch):
    loaded, seeded = [], []
    seed = SharedGenerators.seed
    monkeypatch.setattr(SharedGenerators, "seed", lambda self, n: (seeded.append(n), seed(self, n)))
    dataset = Numbers(SIZE, lambda i: (loaded.append(i), DRAWERS[name](i)))
    for _ in range(2):
        loaded.clear(), seeded.clear()
        [*loader_of(dataset, 2)]
        again = SECOND_LOADINGS[name]
        assert sorted(loaded) == sorted([*range(SIZE), *again])
        first = 2 if name == "nobody" else SIZE - again[0] + 2 if again else SIZE
        assert len(seeded) == first


def error_of(loader):
    try:
        return [*loader] and "none"
    except ValueError as error:  # `pytest.raises` would keep it, and with its frames the workers
        return str(error)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_that_chance_brings(workers):
    def act(i):
        if i == 6:
            raise ValueError(np.random.rand())
        return i

    want = error_of(loader_of(Numbers(SIZE, act), sampler=[6]))
    assert 0 < float(want) < 1
    assert want in error_of(loader_of(Numbers(SIZE, act), 2, num_workers=workers))


def test_an_error_that_chance_does_not_bring_comes_at_once():
    loaded = []
    dataset = Numbers(SIZE, lambda i: (loaded.append(i), 1 / (6 - i)))
    with pytest.raises(ZeroDivisionError):
        [*loader_of(dataset, 2)]
    assert loaded == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_that_draws(workers):
    def noisy(samples):
        return samples, from_all() if samples[0] > 5 else 0

    want = alone(range(SIZE), 3, collate_fn=noisy)
    assert [*loader_of(range(SIZE), 3, collate_fn=noisy, num_workers=workers)] == want


@pytest.mark.parametrize("workers", [0, 1])
def test_many_samples_at_once(workers):
    class Many(Numbers):
        def __getitems__(self, indices):
            return [(i, np.random.rand() if i > 6 else 0) for i in indices]

    assert [*loader_of(Many(SIZE), 4, num_workers=workers)] == alone(Many(SIZE), 4)
