"""state_dict and load_state_dict: a pass goes on where it was, batch for batch."""

import json
import re

import pytest

import mytorch
from mytorch.utils import data
from tests.utils.data.datasets import Augmented, Numbers, Resumable, Stream, plain, seeded_generator, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


class Backwards(data.Sampler):
    """A sampler without a state, which always gives the same."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size - 1, -1, -1))

    def __len__(self):
        return self.size


MAPS = {
    "in order": lambda **o: data.DataLoader(Augmented(), 3, **o),
    "shuffled": lambda **o: data.DataLoader(Augmented(), 3, shuffle=True, **o),
    "drop_last": lambda **o: data.DataLoader(Augmented(), 3, shuffle=True, drop_last=True, **o),
    "samples": lambda **o: data.DataLoader(Augmented(), None, shuffle=True, **o),
    "subset": lambda **o: data.DataLoader(
        Augmented(), 2, sampler=data.SubsetRandomSampler([7, 1, 5], generator=seeded_generator(3)), **o
    ),
    "own sampler": lambda **o: data.DataLoader(Augmented(), 2, sampler=Backwards(9), **o),
    "batch_sampler": lambda **o: data.DataLoader(
        Augmented(),
        batch_sampler=data.BatchSampler(
            data.RandomSampler(range(10), generator=seeded_generator(2)), 4, False
        ),
        **o,
    ),
    "lists": lambda **o: data.DataLoader(Augmented(), batch_sampler=[[1, 2], [3], [4, 5, 6]], **o),
    "distributed": lambda **o: data.DataLoader(
        Augmented(), 2, sampler=data.DistributedSampler(range(10), 2, 1, seed=4), **o
    ),
}
STREAMS = {
    "replayed": lambda **o: data.DataLoader(Stream(), 2, **o),
    "with a state": lambda **o: data.DataLoader(Resumable(), 2, **o),
    "with a state, drop_last": lambda **o: data.DataLoader(Resumable(), 2, drop_last=True, **o),
    "with a state, samples": lambda **o: data.DataLoader(Resumable(), None, **o),
}
WORKERS = {"none": {}, "two": {"num_workers": 2}, "three": {"num_workers": 3, "prefetch_factor": 3}}


def seeded(make, seed=9, **options):
    return make(generator=mytorch.Generator().manual_seed(seed), **options)


def interrupted(make, **options):
    """All batches of three epochs, and the states after 0, 1, 2, … batches of the second one."""
    loader = seeded(make, **options)
    epochs, states = [[plain(b) for b in loader], []], []

    def keep():
        states.append(json.loads(json.dumps(loader.state_dict())))

    iterator = iter(loader)
    keep()
    for batch in iterator:
        epochs[1].append(plain(batch))
        keep()
    return [*epochs, [plain(b) for b in loader]], states


@pytest.mark.parametrize(
    ("name", "workers"),
    [(n, "none") for n in MAPS]
    + [(n, "two") for n in ("shuffled", "samples", "own sampler", "distributed")]
    + [("batch_sampler", "three")],
)
def test_map_datasets(name, workers):
    make = MAPS[name]
    length = len(make())
    whole, states = interrupted(make)
    assert len(whole[1]) == length
    for when in {0, 1, length - 1, length} if workers == "none" else {1}:
        state = states[when]
        resumed = seeded(make, seed=1, **WORKERS[workers])
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert [plain(b) for b in resumed] == whole[1][when:]
        assert [plain(b) for b in resumed] == whole[2]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", STREAMS)
def test_streams(name, workers):
    make, options = STREAMS[name], WORKERS[workers]
    whole, states = interrupted(make, **options)
    length = len(whole[1])
    assert length == len(whole[0])
    some = {"none": range(length + 1), "two": [length // 2], "three": [1, length]}
    for when in some[workers]:
        state = states[when]
        resumed = seeded(make, seed=1, **options)
        resumed.load_state_dict(state)
        assert [plain(b) for b in resumed] == whole[1][when:], (when, state)
        if workers != "three":
            assert [plain(b) for b in resumed] == whole[2]


@pytest.mark.parametrize("workers", ["none", "two"])
def test_a_stream_with_a_state_is_not_replayed(workers):
    class Once(Resumable):
        def __iter__(self):
            for sample in super().__iter__():
                assert sample[1] >= self.first, "it was read before"
                yield sample

        first = 0

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.first = self.position

    loader = data.DataLoader(Once(), 2, **WORKERS[workers])
    iterator = iter(loader)
    seen = [plain(next(iterator)) for _ in range(2)]
    state = loader.state_dict()
    assert [s and s["dataset"] for s in state["streams"]][0]["position"] == 4 - 2 * (workers == "two")
    seen += [plain(b) for b in iterator]
    again = data.DataLoader(Once(), 2, **WORKERS[workers])
    again.load_state_dict(state)
    assert [plain(b) for b in again] == seen[2:]


def test_batches_loaded_ahead_do_not_count():
    loader = data.DataLoader(Numbers(100), 1, num_workers=2, prefetch_factor=10)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    assert loader.state_dict()["batches"] == 3


def test_any_order():
    loader = data.DataLoader(Numbers(40), 2, num_workers=3, in_order=False)
    iterator = iter(loader)
    first = [next(iterator).tolist() for _ in range(7)]
    state = loader.state_dict()
    assert state["batches"] + len(state["ahead"]) == 7
    state.update(batches=1, ahead=[2, 5])  # as if these came first
    loader.load_state_dict(state)
    rest = sorted(b.tolist() for b in loader)
    assert rest == [[2 * k, 2 * k + 1] for k in range(20) if k not in (0, 2, 5)] and len(first) == 7


def test_between_two_passes():
    loader = seeded(MAPS["shuffled"])
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    want = [plain(b) for b in loader]
    resumed = seeded(MAPS["shuffled"], seed=3)
    resumed.load_state_dict(state)
    assert [plain(b) for b in resumed] == want


def test_set_epoch_after_loading():
    whole, states = interrupted(MAPS["shuffled"])
    state = states[2]
    resumed = seeded(MAPS["shuffled"])
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as a training loop does for the epoch that it goes on with
    assert [plain(b) for b in resumed] == whole[1][2:]
    resumed.load_state_dict(state)
    resumed.set_epoch(2)
    assert [plain(b) for b in resumed] == whole[2]


def test_a_sampler_that_was_told_the_epoch():
    def make():
        return MAPS["distributed"](generator=mytorch.Generator().manual_seed(0))

    loader, epochs = make(), []
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        epochs.append([plain(b) for b in loader])
    later = make()
    later.sampler.set_epoch(2)
    assert [plain(b) for b in later] == epochs[2]
    assert epochs[0] != epochs[1]


def test_a_state_can_be_saved(tmp_path):
    whole, states = interrupted(MAPS["shuffled"])
    mytorch.save({"loader": states[2]}, tmp_path / "state.safetensors")
    resumed = seeded(MAPS["shuffled"], num_workers=1)
    resumed.load_state_dict(mytorch.load(tmp_path / "state.safetensors")["loader"])
    assert [plain(b) for b in resumed] == whole[1][2:]


WRONG = {
    "no state": ({}, {"weights": 1}, "expected the state of a DataLoader, got the keys"),
    "another batch size": (
        {"batch_size": 2},
        {},
        "the state is of a loader with batch_size=3, .* batch_size=2",
    ),
    "drop_last": ({"batch_size": 3, "drop_last": True}, {}, "drop_last=False, .* drop_last=True"),
    "another version": ({"batch_size": 3}, {"version": 0}, "expected the state of a DataLoader"),
    "no sampler for it": (
        {"batch_size": 3},
        {"sampler": {"seed": 1}},
        "SequentialSampler has no load_state_dict",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_states(name):
    options, changes, message = WRONG[name]
    state = changes if name == "no state" else data.DataLoader(Numbers(), 3).state_dict() | changes
    with pytest.raises(ValueError, match=message):
        data.DataLoader(Numbers(), **options).load_state_dict(state)


def test_a_stream_goes_on_with_as_many_workers():
    loader = data.DataLoader(Stream(), 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(ValueError, match="the state is of 2 streams, this loader has 1"):
        data.DataLoader(Stream(), 2).load_state_dict(loader.state_dict())
    distributed = data.DistributedSampler(range(10), 2, 0)
    with pytest.raises(ValueError, match="the state is of 2 processes, expected 3"):
        data.DistributedSampler(range(10), 3, 0).load_state_dict(distributed.state_dict())


class Broken(data.IterableDataset):
    """Ten numbers, of which two can't be loaded."""

    def __iter__(self):
        def load(i):
            if i in (1, 6):
                raise ValueError(f"sample {i} is broken")
            return i

        return map(load, range(10))


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_samples_that_a_resumed_pass_discards_are_not_raised_again(workers):
    def rest(iterator, batches=99):
        found = []
        while len(found) < batches:
            try:
                found.append(next(iterator).tolist())
            except StopIteration:
                break
            except ValueError as error:
                found.append(re.search(r"sample \d is broken", str(error))[0])
        return found

    first = data.DataLoader(Broken(), 2, num_workers=workers)
    at = iter(first)
    start = rest(at, 2)
    second = data.DataLoader(Broken(), 2, num_workers=workers)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    whole = rest(iter(data.DataLoader(Broken(), 2, num_workers=workers)))
    assert start + rest(iter(second)) == whole and whole[:2] == ["sample 1 is broken", [2, 3]]
    assert "sample 6 is broken" in whole[2:]
