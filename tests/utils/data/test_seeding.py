"""The generators that samples draw from: seeded for each sample, and afterwards as they were."""

import random

import numpy as np
import pytest

import mytorch
from mytorch.utils import data
from mytorch.utils.data import twisters
from mytorch.utils.data.seeding import Seeder
from tests.utils.data.datasets import Numbers, plain, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


@pytest.fixture(params=["in place", "with setstate"])
def place(request, monkeypatch):
    """Where Python's generator doesn't lie as expected, the same is done through its functions."""
    if request.param == "in place":
        assert twisters.PythonTwister()._memory is not None
    else:
        monkeypatch.setattr(twisters, "_memory_of", lambda generator: None)


def draws():
    return (
        random.random(), random.gauss(0, 1), random.randrange(10**9), random.getrandbits(3),
        np.random.rand(), np.random.randn(), np.random.randint(100), np.random.permutation(5).tolist(),
        mytorch.rand(2).tolist(),
    )  # fmt: skip


def many(count=1300):
    """More than the words of a state, so that the next ones are worked out."""
    return [random.random() for _ in range(count)], np.random.rand(count).tolist()


WORDS = np.random.default_rng(0).integers(0, 2**32, twisters.WORDS, np.uint32)


def test_a_state_is_what_the_functions_would_set(place):
    numpy = twisters.NumPyTwister()
    python, saved = twisters.PythonTwister(), numpy.save()
    before = python.save()
    try:
        python.set(WORDS)
        numpy.set(WORDS)
        assert random.getstate() == (3, (*WORDS.tolist(), 0), None)
        state = np.random.get_state()
        assert state[1].tolist() == WORDS.tolist() and state[2:4] == (0, 0)
        mine = many()
        random.setstate((3, (*WORDS.tolist(), 0), None))
        np.random.set_state(("MT19937", WORDS, 0, 0, 0.0))
        assert many() == mine
    finally:
        python.restore(before)
        numpy.restore(saved)


def test_the_place_in_memory_is_checked(monkeypatch):
    class Other(random.Random):
        def getstate(self):
            version, words, gauss = super().getstate()
            return version, (*words[1:], words[0]), gauss

    assert twisters._memory_of(random.Random(1)) is not None
    assert twisters._memory_of(Other(1)) is None
    monkeypatch.setattr(twisters.sys.implementation, "name", "another")
    assert twisters._memory_of(random.Random(1)) is None


def numbers_of(seeder, *samples):
    """What is drawn for each sample, one after the other: of normal numbers, half of a pair."""
    out = []
    with seeder.apart():
        for index, *at in samples:
            seeder.sample(index, *at)
            out.append(draws())
    return out


SAMPLES = [(0,), (1,), (-1,), (2**63,), (None, 0), (None, 1), (None, 0, 0), (None, 0, 1), (None, 1, 0)]


def test_every_sample_has_numbers_of_its_own(place):
    first = numbers_of(Seeder(3, 0), *SAMPLES)
    assert first == numbers_of(Seeder(3, 0), *reversed(SAMPLES))[::-1]
    seeds = ((3, 1), (4, 0), (2**64 - 1, 0))
    others = [numbers_of(Seeder(seed, epoch), (0,))[0] for seed, epoch in seeds]
    for k in (0, 1, 4, 5, 8):  # of each generator
        assert len({str(numbers[k]) for numbers in first + others}) == len(SAMPLES) + 3


def test_both_ways_give_the_same(monkeypatch):
    in_place = numbers_of(Seeder(3, 0), (5,), (6,))
    monkeypatch.setattr(twisters, "_memory_of", lambda generator: None)
    assert numbers_of(Seeder(3, 0), (5,), (6,)) == in_place


def test_numbers_of_neighbours_are_independent():
    seeder, rows = Seeder(0, 0), []
    with seeder.apart():
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
