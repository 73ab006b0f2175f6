"""Loading in worker processes: the same batches as without, whatever the number of workers."""

import os
import random

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data
from tests.every import every
from tests.utils.data.datasets import Augmented, Numbers, eventually, is_alive, plain, triple, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


class TorchStream(torch.utils.data.IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        worker = 0 if info is None else info.id
        return iter([(worker, i) for i in range(self.lengths[worker])])


class OurStream(data.IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        info = data.get_worker_info()
        worker = 0 if info is None else info.id
        return iter([(worker, i) for i in range(self.lengths[worker])])


# The same batches


def epochs(dataset, count=2, **options):
    loader = data.DataLoader(dataset, generator=mytorch.Generator().manual_seed(5), **options)
    return [[plain(batch) for batch in loader] for _ in range(count)]


WORKERS = {
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "three, far ahead": {"num_workers": 3, "prefetch_factor": 5},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "spawned": {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    "served": {"num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
    "forked": {"num_workers": 2, "multiprocessing_context": "fork", "prefetch_factor": 1},
}


@pytest.mark.parametrize("name", WORKERS)
def test_the_same_batches_for_every_number_of_workers(name):
    want = epochs(Augmented(), batch_size=3, shuffle=True)
    assert want[0] != want[1]
    assert epochs(Augmented(), batch_size=3, shuffle=True, **WORKERS[name]) == want


def test_random_numbers_depend_on_seed_epoch_and_index_alone():
    def by_index(epoch=0, seed=5, **options):
        generator = mytorch.Generator().manual_seed(seed)
        loader = data.DataLoader(Augmented(), batch_size=None, generator=generator, **options)
        loader.set_epoch(epoch)
        return {sample["i"]: str(sample["noise"]) for sample in loader}

    first = by_index()
    assert len(set(first.values())) == 10
    assert by_index(shuffle=True) == by_index(num_workers=2) == first
    others = [by_index(epoch=1), by_index(seed=6)]
    assert not any(set(first.values()) & set(other.values()) for other in others)


def test_loading_leaves_the_user_s_random_numbers_alone():
    def draws():
        return random.random(), np.random.randn(), mytorch.rand(2).tolist()

    def begin():
        random.seed(1), np.random.seed(1), mytorch.manual_seed(1)
        return np.random.randn()  # half of a pair: the other half is part of the state

    begin()
    want = [draws() for _ in range(4)]
    begin()
    got = [draws() for _ in zip(range(4), data.DataLoader(Augmented()), strict=False)]
    assert got == want


OPTIONS = {
    "batches": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "drop all": {"batch_size": 100, "drop_last": True},
    "single samples": {"batch_size": None},
    "collate_fn": {"batch_size": 3, "collate_fn": triple},
    "sampler": {"sampler": [3, 1, 4, 1, 5], "batch_size": 2},
    "batch_sampler": {"batch_sampler": [[3, 1], [4], [1, 5, 9]]},
    "any order": {"batch_size": 10, "in_order": False},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_against_pytorch(name):
    options = OPTIONS[name]
    ours = data.DataLoader(Numbers(), num_workers=2, **options)
    theirs = torch.utils.data.DataLoader(Numbers(), **options)
    assert [plain(b) for b in ours] == [plain(b) for b in theirs]
    assert len(ours) == len(theirs)
    for attribute in ("batch_size", "drop_last", "timeout", "persistent_workers"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert ours.prefetch_factor == 2 and data.DataLoader(Numbers()).prefetch_factor is None


@pytest.mark.parametrize(
    "options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "drop_last": True}]
)
def test_streams_against_pytorch(options):
    for lengths in ((5, 3), (0, 4), (0, 0)):
        ours = data.DataLoader(OurStream(lengths), num_workers=2, **options)
        theirs = torch.utils.data.DataLoader(TorchStream(lengths), num_workers=2, **options)
        assert [plain(b) for b in ours] == [plain(b) for b in theirs]


def test_batches_in_any_order_are_all_there():
    loader = data.DataLoader(Numbers(60), 2, num_workers=3, in_order=False)
    assert sorted(b.tolist() for b in loader) == [[i, i + 1] for i in range(0, 60, 2)]


# Life


def test_worker_info():
    seen = []

    def act(i):
        info = data.get_worker_info()
        assert isinstance(info, data.WorkerInfo) and isinstance(info.dataset, Numbers)
        return info.id, info.num_workers, info.seed, os.getpid(), *seen

    loader = data.DataLoader(Numbers(6, act), 1, num_workers=3, worker_init_fn=lambda i: seen.append(10 + i))
    rows = [[x.item() for x in batch] for batch in loader]
    assert [row[0] for row in rows] == [0, 1, 2, 0, 1, 2] and {row[1] for row in rows} == {3}
    assert [row[4] for row in rows] == [10, 11, 12, 10, 11, 12]
    assert len({row[2] for row in rows}) == len({row[3] for row in rows}) == 3
    assert data.get_worker_info() is None and os.getpid() not in {row[3] for row in rows}


@pytest.mark.parametrize("stays", [True, False])
def test_persistent_workers(stays):
    loader = data.DataLoader(Numbers(8, lambda i: os.getpid()), 1, num_workers=2, persistent_workers=stays)
    first, second = ({b.item() for b in loader} for _ in range(2))
    assert len(first) == len(second) == 2
    assert (first == second) == stays
    assert every(map(is_alive, second)) == stays
    del loader
    eventually(lambda: not any(map(is_alive, first | second)))


def test_a_pass_that_is_broken_off():
    loader = data.DataLoader(Numbers(50), 5, num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    assert [b[0].item() for b in loader] == list(range(0, 50, 5))
    with pytest.raises(RuntimeError, match="another pass with the same persistent workers"):
        next(first)


def test_two_passes_at_once():
    loader = data.DataLoader(Numbers(8), 2, num_workers=1)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([i, i + 1],) * 2 for i in range(0, 8, 2)
    ]


def test_set_epoch_reaches_the_dataset_of_persistent_workers():
    class Epochs(Numbers):
        epoch = -1

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __getitem__(self, i):
            return self.epoch

    loader = data.DataLoader(Epochs(2), 2, num_workers=1, persistent_workers=True)
    seen = []
    for epoch in (3, 7):
        loader.set_epoch(epoch)
        seen += [b.tolist() for b in loader]
    assert seen == [[3, 3], [7, 7]]


WRONG = {
    "start method": ({"multiprocessing_context": "thread"}, ValueError),
    "context": ({"multiprocessing_context": 3}, TypeError),
    "timeout": ({"timeout": -1}, ValueError),
    "prefetch": ({"prefetch_factor": -1}, ValueError),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name):
    options, error = WRONG[name]
    with pytest.raises(error):
        torch.utils.data.DataLoader(Numbers(), num_workers=1, **options)
    with pytest.raises(error, match=next(iter(options))):
        data.DataLoader(Numbers(), num_workers=1, **options)
