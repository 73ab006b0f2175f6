"""The position of a loader: another one with its state returns the batches that the loader itself returns."""

import copy
import json
import pickle

import pytest

import mytorch
from mytorch.utils import data
from tests.utils.data.datasets import Augmented, Resumable, Stream, plain, seeded_generator, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


class OwnSampler(data.Sampler):
    """A sampler whose order depends on the epoch, without a state_dict."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([(i + self.epoch) % 10 for i in range(10)])

    def __len__(self):
        return 10


class Epochs(Augmented):
    """A dataset that is told the epoch."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, i):
        return {**super().__getitem__(i), "epoch": self.epoch}


def distributed(**options):
    sampler = data.DistributedSampler(range(20), 2, 1, seed=4)
    return data.DataLoader(Augmented(20), 2, sampler=sampler, **options)


LOADERS = {
    "in order": lambda **o: data.DataLoader(Augmented(), 2, **o),
    "shuffled": lambda **o: data.DataLoader(Augmented(), 2, shuffle=True, **o),
    "distributed": distributed,
    "a stream": lambda **o: data.DataLoader(Stream((10, 9)), 2, **o),
}
MORE = {  # whose state needs the same calls of set_epoch
    "a sampler with an epoch": lambda **o: data.DataLoader(Augmented(), 2, sampler=OwnSampler(), **o),
    "a dataset with an epoch": lambda **o: data.DataLoader(Epochs(), 2, shuffle=True, **o),
}


def taken(loader, count=2):
    """Begins a pass; returns its iterator after `count` batches."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return batches


def leave(loader, count=2):
    for number, _ in enumerate(loader, 1):
        if number == count:
            break


def a_state(loader, epoch=3, batches=2):
    """The state of a loader of this kind in the middle of an epoch."""
    other = copy.deepcopy(loader)
    other.set_epoch(epoch)
    at = taken(other, batches)
    state = other.state_dict()
    del at
    return state


def fail(loader):
    try:
        for _ in loader:
            raise KeyError("the loop is left")
    except KeyError:
        pass


ACTIONS = {  # what is done with a loader; the pass of an iterator that is returned stays current
    "nothing": lambda loader: None,
    "a pass has ended": list,
    "in a pass": taken,
    "in the second pass": lambda loader: [list(loader), taken(loader)][1],
    "at the end of a pass": lambda loader: taken(loader, 5),
    "break": leave,
    "an error in the loop": fail,
    "break, set_epoch": lambda loader: (leave(loader), loader.set_epoch(1))[1],
    "break, another pass": lambda loader: (leave(loader), taken(loader, 1))[1],
    "break, set_epoch, another pass": lambda loader: (leave(loader), loader.set_epoch(4), taken(loader))[2],
    "set_epoch": lambda loader: loader.set_epoch(2),
    "loaded": lambda loader: loader.load_state_dict(a_state(loader)),
    "loaded, in the pass": lambda loader: (loader.load_state_dict(a_state(loader)), taken(loader, 1))[1],
    "loaded, break": lambda loader: (loader.load_state_dict(a_state(loader)), leave(loader, 1))[1],
    "loaded, its epoch set": lambda loader: (loader.load_state_dict(a_state(loader)), loader.set_epoch(3))[1],
    "loaded, another epoch set": lambda loader: (
        loader.load_state_dict(a_state(loader)), loader.set_epoch(1))[1],
    "break, loaded": lambda loader: (leave(loader), loader.load_state_dict(a_state(loader)))[1],
}


def reached(make, action, **options):
    """A loader after an action, and its current pass."""
    loader = make(generator=seeded_generator(9), **options)
    batches = ACTIONS[action](loader)
    return loader, batches if hasattr(batches, "__next__") else None


def check(make, action, **options):
    loader, batches = reached(make, action, **options)
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = make(generator=seeded_generator(1), **options)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    for number in range(2):
        own = [plain(b) for b in (loader if number or batches is None else batches)]
        assert [plain(b) for b in resumed] == own, (action, number)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_state_is_that_of_what_the_loader_returns_next(name, action):
    check(LOADERS[name], action)


@pytest.mark.parametrize("action", ["nothing", "in a pass", "at the end of a pass", "a pass has ended"])
def test_a_stream_with_a_state(action):
    """Where its loop was left, this stream goes on by itself, which no loader knows."""
    check(lambda **o: data.DataLoader(Resumable((10, 9)), 2, **o), action)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    "action", ["in a pass", "break", "break, another pass", "break, set_epoch", "loaded, in the pass"]
)
def test_workers_load_ahead_what_does_not_count(action, persistent):
    options = {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": persistent}
    check(LOADERS["shuffled"], action, **options)


def test_streams_of_workers():
    check(LOADERS["a stream"], "break", num_workers=2)


@pytest.mark.parametrize("name", MORE)
def test_set_epoch_after_loading_reaches_the_sampler_and_the_dataset(name):
    loader = MORE[name](generator=seeded_generator(9))
    loader.set_epoch(3)
    batches = taken(loader)
    resumed = MORE[name](generator=seeded_generator(1))
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(3)
    assert [plain(b) for b in resumed] == [plain(b) for b in batches]


@pytest.mark.parametrize("name", ["shuffled", "distributed"])
def test_a_sampler_that_was_set_to_another_epoch_begins_it(name):
    loader, fresh = (LOADERS[name](generator=seeded_generator(9)) for _ in range(2))
    loader.load_state_dict(a_state(fresh))
    loader.sampler.set_epoch(3)  # that of the state
    assert len(list(loader)) == 3
    loader.load_state_dict(a_state(fresh))
    loader.sampler.set_epoch(5)
    assert (loader.state_dict()["batches"], len(list(loader))) == (0, 5)


def test_set_epoch_in_a_loop_names_the_pass_that_comes_next():
    loader = LOADERS["shuffled"](generator=seeded_generator(9))
    batches = taken(loader, 2)
    loader.set_epoch(4)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (4, 0)
    assert len(list(batches)) == 3  # the loop isn't cut short
    other = LOADERS["shuffled"](generator=seeded_generator(1))
    other.load_state_dict(state)
    assert [plain(b) for b in other] == [plain(b) for b in loader]


def test_persistent_workers_have_the_seed_of_a_state():
    make = LOADERS["in order"]
    loader = make(generator=seeded_generator(1), num_workers=1, persistent_workers=True)
    list(loader)
    state = make(generator=seeded_generator(9)).state_dict()
    loader.load_state_dict(state)
    assert [plain(b) for b in loader] == [plain(b) for b in make(generator=seeded_generator(9))]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_not_iterated_over(duplicate):
    loader = data.DataLoader(data.TensorDataset(mytorch.arange(6)), 2, shuffle=True)
    batches = taken(loader, 1)
    copied = duplicate(loader)
    assert (copied.state_dict()["epoch"], copied.state_dict()["batches"]) == (1, 0)
    assert loader.state_dict()["batches"] == 1 and len(list(batches)) == 2
