"""The generators that samples draw from: seeded for each sample, and afterwards as they were."""

import random

import numpy as np
import pytest

import mytorch
from mytorch.random import default_generator
from mytorch.utils import data
from mytorch.utils.data.seeding import Seeder
from tests.utils.data.datasets import Numbers, plain, within

SIZE = 12


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


def draws():
    return (
        random.random(), random.gauss(0, 1), random.randrange(10**9), random.getrandbits(3),
        np.random.rand(), np.random.randn(), np.random.randint(100), np.random.permutation(5).tolist(),
        mytorch.rand(2).tolist(),
    )


def numbers_of(seeder, *samples):
    """What is drawn for each sample, one after the other: of normal numbers, half of a pair."""
    out = []
    with seeder.isolated():
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
    with seeder.isolated():
        for index in range(4000):
            seeder.sample(index)
            rows.append((random.random(), random.random(), *np.random.rand(2), *mytorch.rand(2).tolist()))
    table = np.array(rows)
    table = np.concatenate([table[:-1], table[1:]], 1)  # each sample's, and those of the next one
    correlation = np.corrcoef(table.T) - np.eye(12)
    assert abs(correlation).max() < 4 / np.sqrt(len(table))
    assert abs(table.mean(0) - 0.5).max() < 4 / np.sqrt(12 * len(table))


# What a sample draws doesn't depend on its batch, on other samples, or on who loads it


def from_all():
    return random.random(), np.random.randn(), mytorch.rand(1).item()


DRAWERS = {
    "all": lambda i: from_all(),
    "in turn": lambda i: (lambda: 0, random.random, np.random.randn, lambda: mytorch.rand(1).item())[i % 4](),
    "a kernel's seed": lambda i: default_generator().next_seed() if i > 6 else 0,
    "half of a pair": lambda i: (random.gauss(0, 1), np.random.randn()) if i in (7, 8) else 0,
}


def loader_of(dataset, batch_size=1, collate_fn=list, **options):
    generator = mytorch.Generator().manual_seed(3)
    return data.DataLoader(dataset, batch_size, generator=generator, collate_fn=collate_fn, **options)


def alone(dataset, batch_size=1, **options):
    """Each batch as the only one of a pass."""
    batches = [[*range(i, i + batch_size)] for i in range(0, SIZE, batch_size)]
    return [next(iter(loader_of(dataset, batch_sampler=[batch], **options))) for batch in batches]


@pytest.mark.parametrize("name", DRAWERS)
def test_a_sample_draws_what_it_draws_alone(name):
    dataset = Numbers(SIZE, lambda i: (i, DRAWERS[name](i)))
    want = sum(alone(dataset), [])
    for batch_size, workers in ((1, 0), (5, 0), (2, 2)):
        assert sum(loader_of(dataset, batch_size, num_workers=workers), []) == want


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_that_draws(workers):
    def noisy(samples):
        return samples, from_all()

    want = alone(range(SIZE), 3, collate_fn=noisy)
    assert [*loader_of(range(SIZE), 3, collate_fn=noisy, num_workers=workers)] == want


def test_many_samples_at_once():
    class Many(Numbers):
        def __getitems__(self, indices):
            return [(i, np.random.rand()) for i in indices]

    assert [*loader_of(Many(SIZE), 4)] == [*loader_of(Many(SIZE), 4, num_workers=1)] == alone(Many(SIZE), 4)


def test_a_sample_is_loaded_once():
    loaded = []
    dataset = Numbers(SIZE, lambda i: loaded.append(i) or np.random.rand())
    [*loader_of(dataset, 5)]
    assert loaded == [*range(SIZE)]


class Fixed(Numbers):
    is_random = False


def test_a_dataset_that_draws_nothing_is_not_seeded(monkeypatch):
    seeds = []
    monkeypatch.setattr(random, "seed", lambda *args: seeds.append(args))
    assert [b.tolist() for b in data.DataLoader(Fixed(4), 2)] == [[0, 1], [2, 3]]
    tensors = data.TensorDataset(mytorch.arange(3))
    assert [*data.DataLoader(tensors, None)] and not seeds
    [*data.DataLoader(Fixed(4), 2, collate_fn=list)]  # which may draw
    assert len(seeds) == 4


class Noisy(data.TensorDataset):
    def __getitem__(self, index):
        (x,) = super().__getitem__(index)
        return x + mytorch.randn(())


def test_a_subclass_that_loads_by_itself_is_seeded():
    """What TensorDataset promises holds for its own `__getitem__` only."""
    batches = []
    for workers in (0, 2):
        mytorch.manual_seed(0)
        loader = data.DataLoader(Noisy(mytorch.zeros(6)), 2, num_workers=workers)
        batches.append([batch.tolist() for batch in loader])
    assert batches[0] == batches[1] and len({x for batch in batches[0] for x in batch}) == 6


# The user's own generators


def begin(bits):
    np.random.set_bit_generator(bits(5))
    random.seed(1), mytorch.manual_seed(1)


BEFORE = {"nothing": lambda: None, "half of a pair": lambda: (np.random.randn(), random.gauss(0, 1))}


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64])
def test_loading_leaves_the_user_s_generators_alone(name, bits):
    usual = np.random.get_bit_generator()
    try:
        begin(bits)
        BEFORE[name]()
        want = [draws() for _ in range(3)]
        begin(bits)
        BEFORE[name]()
        users = np.random.get_bit_generator()
        loader = data.DataLoader(Numbers(3, lambda i: (*from_all(), i)), 1)
        got = [draws() for _ in loader]
        assert np.random.get_bit_generator() is users
    finally:
        np.random.set_bit_generator(usual)
    assert got == want


def test_an_error_leaves_them_alone_too():
    begin(np.random.MT19937)
    want = draws()
    begin(np.random.MT19937)
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
    options = {"num_workers": workers, "worker_init_fn": np.random.seed}
    got = [plain(b) for b in data.DataLoader(SeedsItself(4), 2, **options)]
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
