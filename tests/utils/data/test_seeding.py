"""The generators that samples draw from: seeded for each sample, and afterwards as they were."""

import pickle
import random

import numpy as np
import pytest

import mytorch
from mytorch.utils import data
from mytorch.utils.data import shared_generators
from mytorch.utils.data.seeding import Seeder
from mytorch.utils.data.shared_generators import SharedGenerators
from tests.utils.data.datasets import Numbers, plain, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


@pytest.fixture(params=["in memory", "pickled"])
def place(request, monkeypatch):
    """Where generators don't lie in memory as expected, they are pickled to see if somebody drew."""
    shared_generators._reader.cache_clear()
    if request.param == "pickled":
        monkeypatch.setattr(shared_generators, "_IN_ONE_PIECE", ())
    yield
    shared_generators._reader.cache_clear()


def draws():
    return (
        random.random(), random.gauss(0, 1), random.randrange(10**9), random.getrandbits(3),
        np.random.rand(), np.random.randn(), np.random.randint(100), np.random.permutation(5).tolist(),
        mytorch.rand(2).tolist(),
    )  # fmt: skip


def many(count=1300):
    """More than the words of a state, so that the next ones are worked out."""
    return [random.random() for _ in range(count)], np.random.rand(count).tolist()


# Has somebody drawn?

CHANGES = {
    "random": random.random,
    "bits": lambda: random.getrandbits(1),
    "second half of Python's pair": lambda: random.gauss(0, 1),
    "seed": lambda: random.seed(1),
    "rand": np.random.rand,
    "a byte": lambda: np.random.bytes(1),
    "second half of NumPy's pair": np.random.randn,
    "NumPy's seed": lambda: np.random.seed(1),
    "another generator": lambda: np.random.set_bit_generator(np.random.PCG64(1)),
    "new words": lambda: (np.random.rand(312), [random.random() for _ in range(312)]),
}


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64])
@pytest.mark.parametrize("name", CHANGES)
def test_who_draws_is_noticed(name, bits, place):
    usual, shared = np.random.get_bit_generator(), SharedGenerators()
    try:
        random.seed(5), np.random.set_bit_generator(bits(5))
        if "pair" in name:
            CHANGES[name]()  # the first half, so that the second one is in store
        before = shared.save()
        assert shared.look() == shared.look() == before
        CHANGES[name]()
        assert shared.look() != before
    finally:
        np.random.set_bit_generator(usual)


class Other(random.Random):
    pass


def test_only_memory_that_is_known_to_hold_all_is_read(monkeypatch):
    def is_pickled(generator):
        shared_generators._reader.cache_clear()
        return shared_generators._reader(generator)() == pickle.dumps(generator)

    known = (random.Random(1), np.random.RandomState(1), np.random.MT19937(1))
    assert not any(map(is_pickled, known))
    assert all(map(is_pickled, (Other(1), np.random.PCG64(1))))
    monkeypatch.setattr(shared_generators.sys.implementation, "name", "another")
    assert all(map(is_pickled, known))


def numbers_of(seeder, *samples):
    """What is drawn for each sample, one after the other: of normal numbers, half of a pair."""
    out = []
    with seeder:
        for index, *at in samples:
            seeder.sample(index, *at)
            out.append(draws())
    return out


SAMPLES = [(0,), (1,), (-1,), (2**63,), (None, 0), (None, 1), (None, 0, 0), (None, 0, 1), (None, 1, 0)]


def test_every_sample_has_numbers_of_its_own():
    first = numbers_of(Seeder(3, 0), *SAMPLES)
    assert first == numbers_of(Seeder(3, 0), *reversed(SAMPLES))[::-1]
    seeds = ((3, 1), (4, 0), (2**64 - 1, 0))
    others = [numbers_of(Seeder(seed, epoch), (0,))[0] for seed, epoch in seeds]
    for k in (0, 1, 4, 5, 8):  # of each generator
        assert len({str(numbers[k]) for numbers in first + others}) == len(SAMPLES) + 3


def test_numbers_of_neighbours_are_independent():
    seeder, rows = Seeder(0, 0), []
    with seeder:
        for index in range(4000):
            seeder.sample(index)
            rows.append((random.random(), random.random(), *np.random.rand(2), *mytorch.rand(2).tolist()))
    table = np.array(rows)
    table = np.concatenate([table[:-1], table[1:]], 1)  # each sample's, and those of the next one
    correlation = np.corrcoef(table.T) - np.eye(12)
    assert abs(correlation).max() < 4 / np.sqrt(len(table))
    assert abs(table.mean(0) - 0.5).max() < 4 / np.sqrt(12 * len(table))


# The user's own generators


def seed_all():
    random.seed(1)
    np.random.seed(1)
    mytorch.manual_seed(1)


BEFORE = {
    "nothing": lambda: None,
    "half of a pair": lambda: (np.random.randn(), random.gauss(0, 1)),
    "another half of a pair": lambda: np.random.randn(3),
    "the last number of a block": lambda: (np.random.rand(311), [random.random() for _ in range(311)]),
    "the first of a block": lambda: (np.random.rand(312), [random.random() for _ in range(312)]),
}


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64])
def test_loading_leaves_the_user_s_generators_alone(name, bits, place):
    usual = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(bits(5))
        if bits is np.random.MT19937:
            seed_all()
        state, python = np.random.get_state(legacy=False), random.getstate()
        mytorch.manual_seed(1)
        BEFORE[name]()
        want = [draws() for _ in range(3)]
        np.random.set_state(state)
        random.setstate(python)
        mytorch.manual_seed(1)
        BEFORE[name]()
        loader = data.DataLoader(Numbers(3, lambda i: (many(5), np.random.randn(), i)), 1)
        got = [draws() for _ in loader]
    finally:
        np.random.set_bit_generator(usual)
    assert got == want


def test_an_error_leaves_them_alone_too():
    seed_all()
    want = draws()
    seed_all()
    with pytest.raises(ZeroDivisionError):
        list(data.DataLoader(Numbers(3, lambda i: np.random.rand() / 0)))
    assert draws() == want


class SeedsItself(Numbers):
    def __getitem__(self, i):
        random.seed(i)
        np.random.seed(i)
        mytorch.manual_seed(i)
        return draws()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_may_seed_itself(workers):
    usual = np.random.RandomState(3).rand()
    got = [
        plain(b)
        for b in data.DataLoader(SeedsItself(4), 2, num_workers=workers, worker_init_fn=np.random.seed)
    ]
    assert got == [plain(b) for b in data.DataLoader(SeedsItself(4), 2)]
    assert got[1][4] == ("float64", [np.random.RandomState(2).rand(), usual])


class Begins(data.IterableDataset):
    def __iter__(self):
        return iter([random.random(), np.random.rand(), mytorch.rand(1).item()])


def test_a_stream_s_beginning_is_seeded():
    def epochs(seed, **options):
        loader = data.DataLoader(Begins(), None, generator=mytorch.Generator().manual_seed(seed), **options)
        return [list(loader) for _ in range(2)]

    first = epochs(0)
    assert first[0] != first[1] and epochs(0) == first == epochs(0, num_workers=1)
    assert epochs(1)[0] != first[0]
