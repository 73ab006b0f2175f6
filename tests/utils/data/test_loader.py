"""DataLoader against PyTorch's."""

import warnings

import numpy as np
import pytest
import torch
import torch.utils.data

import mytorch
from mytorch.utils import data
from tests.every import every
from tests.utils.data.datasets import seeded_generator


class Squares(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return np.full(2, i * i, np.float32), i


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return 10


class TorchStream(torch.utils.data.IterableDataset):
    __iter__, __len__ = Stream.__iter__, Stream.__len__


def plain(batch):
    if isinstance(batch, (mytorch.Tensor, torch.Tensor)):
        return str(batch.dtype).removeprefix("torch."), batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else batch


OPTIONS = {
    "default": {},
    "batches": {"batch_size": 4},
    "whole": {"batch_size": 5},
    "larger than the data": {"batch_size": 100},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "drop all": {"batch_size": 100, "drop_last": True},
    "single samples": {"batch_size": None},
    "collate_fn": {"batch_size": 3, "collate_fn": lambda samples: len(samples)},
    "convert": {"batch_size": None, "collate_fn": lambda sample: str(sample)},
}
SAMPLERS = {
    "sampler": {"sampler": [3, 1, 4, 1, 5], "batch_size": 2},
    "sampler of single samples": {"sampler": [3, 1, 4], "batch_size": None},
    "batch_sampler": {"batch_sampler": [[3, 1], [4], [1, 5, 9]]},
}


@pytest.mark.parametrize("name", [*OPTIONS, *SAMPLERS])
def test_map_dataset(name):
    options = {**OPTIONS, **SAMPLERS}[name]
    ours, theirs = data.DataLoader(Squares(), **options), torch.utils.data.DataLoader(Squares(), **options)
    assert [plain(b) for b in ours] == [plain(b) for b in theirs]
    assert len(ours) == len(theirs) == len(list(ours))
    assert ours.batch_size == theirs.batch_size and ours.drop_last == theirs.drop_last


@pytest.mark.parametrize("name", OPTIONS)
def test_iterable_dataset(name):
    ours = data.DataLoader(Stream(), **OPTIONS[name])
    theirs = torch.utils.data.DataLoader(TorchStream(), **OPTIONS[name])
    assert [plain(b) for b in ours] == [plain(b) for b in theirs]
    assert len(ours) == len(theirs) == len(list(ours))


def length(iterator):
    try:
        return len(iterator)
    except TypeError:
        return "TypeError"


@pytest.mark.parametrize("workers", [0, 1])
def test_length_of_a_pass(workers):
    for options in [*OPTIONS.values(), *SAMPLERS.values(), {"sampler": (i for i in range(3))}]:
        ours = iter(data.DataLoader(Squares(), **options, num_workers=workers))
        theirs = iter(torch.utils.data.DataLoader(Squares(), **options))
        assert length(ours) == length(theirs)
        if "drop_last" not in options:
            next(ours)
            assert length(ours) == length(theirs)  # it is that of the whole pass
    ours, theirs = data.DataLoader(Stream(), 2), torch.utils.data.DataLoader(TorchStream(), 2)
    assert len(ours) == len(theirs) and length(iter(ours)) == length(iter(theirs)) == "TypeError"


def test_anything_with_length_and_index_is_a_dataset():
    assert [b.tolist() for b in data.DataLoader([1, 2, 3], 2)] == [[1, 2], [3]]
    x = mytorch.Tensor(np.arange(6.0).reshape(3, 2))
    assert [b.tolist() for b in data.DataLoader(x, 2)] == [[[0, 1], [2, 3]], [[4, 5]]]


def test_many_samples_at_once():
    class Batched(Squares):
        asked = []

        def __getitems__(self, indices):
            self.asked.append(indices)
            return [self[i] for i in indices]

    batches = list(data.DataLoader(Batched(), 4))
    assert Batched.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [plain(b) for b in batches] == [plain(b) for b in data.DataLoader(Squares(), 4)]


# What is told of the length of a stream


class Told(Stream):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


class TorchTold(torch.utils.data.IterableDataset):
    __init__, __iter__, __len__ = Told.__init__, Told.__iter__, Told.__len__


LENGTHS = {
    "right": (10, {"batch_size": None}),
    "too short": (7, {"batch_size": None}),
    "too long": (11, {"batch_size": None}),
    "too short in batches": (3, {"batch_size": 2}),
    "within what batches may be": (5, {"batch_size": 2}),
    "workers without shares": (10, {"batch_size": None, "num_workers": 2}),
}


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("name", LENGTHS)
def test_a_warning_of_a_wrong_length(name, is_asked):
    length, options = LENGTHS[name]
    told = []
    for module, stream in ((torch.utils.data, TorchTold), (data, Told)):
        loader = module.DataLoader(stream(length), **options)
        if is_asked:
            len(loader)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            count = len([batch for batch in loader])
        text = [
            str(warning.message) for warning in seen if "Length of IterableDataset" in str(warning.message)
        ]
        told.append((count, len(text)))
    assert told[0] == told[1]
    for line in text:
        assert f"was reported to be {length} (when" in line
    assert bool(text) == (is_asked and name not in ("right", "too long", "within what batches may be"))


# Shuffling


def order(loader):
    return [i for _, index in loader for i in index.tolist()]


def shuffled(seed=0, **options):
    generator = mytorch.Generator().manual_seed(seed)
    return data.DataLoader(Squares(), 3, shuffle=True, generator=generator, **options)


def test_shuffle_gives_every_sample_in_a_new_order_each_epoch():
    loader = shuffled()
    epochs = [order(loader) for _ in range(4)]
    assert every(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_same_seed_gives_the_same_orders():
    first, second = shuffled(), shuffled()
    assert [order(first) for _ in range(3)] == [order(second) for _ in range(3)]
    assert order(shuffled(seed=1)) != order(shuffled(seed=2))
    mytorch.manual_seed(4)
    runs = [order(data.DataLoader(Squares(), 3, shuffle=True))]
    mytorch.manual_seed(4)
    runs.append(order(data.DataLoader(Squares(), 3, shuffle=True)))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("batch_size", [3, None])
def test_set_epoch_gives_the_order_of_that_epoch(batch_size):
    def loader():
        return data.DataLoader(
            range(10), batch_size, shuffle=True, generator=mytorch.Generator().manual_seed(0), collate_fn=str
        )

    whole = loader()
    epochs = [list(whole) for _ in range(3)]
    resumed = loader()
    resumed.set_epoch(2)
    assert list(resumed) == epochs[2]
    resumed.set_epoch(0)
    assert list(resumed) == epochs[0]


def test_set_epoch_reaches_datasets_and_batch_samplers():
    class Epochs(Stream):
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch])

    loader = data.DataLoader(Epochs())
    loader.set_epoch(5)
    assert [b.tolist() for b in loader] == [[5]]
    sampler = data.BatchSampler(data.RandomSampler(range(10), generator=seeded_generator(0)), 5, False)
    loader = data.DataLoader(range(10), batch_sampler=sampler)
    loader.set_epoch(7)
    assert sampler.sampler.epoch == 7
    data.DataLoader(range(10)).set_epoch(1)  # nobody wants to know


def test_two_passes_at_once():
    loader = data.DataLoader(range(4), 2)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([0, 1],) * 2,
        ([2, 3],) * 2,
    ]


# Wrong input

WRONG = {
    "negative workers": {"num_workers": -1},
    "timeout": {"timeout": -1},
    "prefetch without workers": {"prefetch_factor": 2},
    "persistent without workers": {"persistent_workers": True},
    "context without workers": {"multiprocessing_context": "fork"},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch_sampler and batch_size": {"batch_sampler": [[1]], "batch_size": 3},
    "batch_sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch_sampler and sampler": {"batch_sampler": [[1]], "sampler": [1]},
    "batch_sampler and drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "no batches to drop": {"batch_size": None, "drop_last": True},
    "batch_size zero": {"batch_size": 0},
    "batch_size float": {"batch_size": 2.5},
}
WRONG_ITERABLE = {
    "shuffle": {"shuffle": True},
    "sampler": {"sampler": [1]},
    "batch_sampler": {"batch_sampler": [[1]]},
    "batch_size negative": {"batch_size": -2},
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options(case):
    with pytest.raises(ValueError):  # noqa: PT011 - its words are PyTorch's
        torch.utils.data.DataLoader(Squares(), **WRONG[case])
    with pytest.raises(ValueError, match=f"{next(iter(WRONG[case]))}"):
        data.DataLoader(Squares(), **WRONG[case])


@pytest.mark.parametrize("case", WRONG_ITERABLE)
def test_wrong_options_with_an_iterable_dataset(case):
    with pytest.raises(ValueError):  # noqa: PT011
        torch.utils.data.DataLoader(TorchStream(), **WRONG_ITERABLE[case])
    with pytest.raises(ValueError, match=next(iter(WRONG_ITERABLE[case]))):
        data.DataLoader(Stream(), **WRONG_ITERABLE[case])


def test_the_number_of_workers_is_an_int():
    with pytest.raises(TypeError, match="num_workers option should be an int, got 2.0"):
        data.DataLoader(Squares(), num_workers=2.0)


def test_what_is_fixed_stays_fixed():
    loader = data.DataLoader(Squares(), 2)
    with pytest.raises(
        ValueError, match="batch_size attribute should not be set after DataLoader is initialized"
    ):
        loader.batch_size = 4
    loader.collate_fn = len
    assert list(loader) == [2] * 5


def test_an_error_in_the_dataset_arrives_as_it_is():
    class Broken(Squares):
        def __getitem__(self, i):
            raise ZeroDivisionError(f"sample {i}")

    with pytest.raises(ZeroDivisionError, match="sample 0"):
        next(iter(data.DataLoader(Broken())))
