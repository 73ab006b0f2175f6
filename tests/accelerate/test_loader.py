"""PreparedLoader: where it is, for any number of processes."""

import numpy as np
import pytest

import mytorch
from mytorch.accelerate import Accelerator, skip_first_batches, world
from mytorch.accelerate.gradient_state import GradientState
from mytorch.accelerate.loader import PreparedLoader
from mytorch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    get_worker_info,
)
from tests.each import each


@pytest.fixture
def ranks(monkeypatch):
    """`ranks(n, r)` makes this process rank r of n, as far as sharing out goes."""

    def pretend(n, rank=0):
        monkeypatch.setattr(world, "world_size", lambda group=None: n)
        monkeypatch.setattr(world, "rank", lambda group=None: rank)
        monkeypatch.setattr(world, "broadcast_object", lambda obj, src=0: obj)

    return pretend


def prepared(batch_size=2, size=24, **options):
    options = {"shuffle": True, "generator": mytorch.Generator().manual_seed(5), **options}
    return Accelerator(cpu=True).prepare(DataLoader(range(size), batch_size, **options))


def epoch_of(n, rank, ranks, **options):
    ranks(n, rank)
    return [batch.tolist() for batch in prepared(**options)]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_is_that_of_one_process(ranks, workers):
    options = {"num_workers": workers, "size": 23}
    whole = [i for batch in epoch_of(1, 0, ranks, **options) for i in batch]
    parts = [epoch_of(3, rank, ranks, **options) for rank in range(3)]
    dealt = [i for step in zip(*parts, strict=True) for batch in step for i in batch]
    assert dealt[:23] == whole and len(dealt) == 24


CHANGES = {  # ranks and batch size before, and after; batches given out before
    "as before": ((2, 3), (2, 3), 2),
    "more ranks": ((2, 2), (4, 2), 2),
    "one rank": ((2, 3), (1, 3), 3),
    "larger batches": ((1, 2), (1, 4), 4),
}


@pytest.mark.parametrize("name", CHANGES)
def test_going_on_with_other_numbers(ranks, name):
    (n, size), (new_n, new_size), given = CHANGES[name]
    ranks(n, 0)
    batches = prepared(size)
    at = iter(batches)
    for _ in range(given):
        next(at)
    state = batches.state_dict()
    left = []
    for rank in range(new_n):
        ranks(new_n, rank)
        resumed = prepared(new_size, generator=mytorch.Generator().manual_seed(99))
        resumed.load_state_dict(state)
        left.append([batch.tolist() for batch in resumed])
    order = [i for batch in epoch_of(1, 0, ranks) for i in batch]
    dealt = [i for step in zip(*left, strict=True) for batch in step for i in batch]
    assert dealt == order[n * size * given :]


@pytest.mark.parametrize("given", ["batch_size", "batch_sampler"])
def test_split_batches_go_on_with_other_numbers(ranks, given):
    """The batches of all processes together are the same for any number of them."""

    def make():
        options = {"batch_size": 6, "shuffle": False}
        if given == "batch_sampler":
            options = {"batch_sampler": BatchSampler(SequentialSampler(range(24)), 6, False)}
        return Accelerator(cpu=True, split_batches=True).prepare(DataLoader(range(24), **options))

    ranks(3)
    at = make()
    batches = iter(at)
    assert (at.total_batch_size, len(at), next(batches).tolist()) == (6, 4, [0, 1])
    state = at.state_dict()
    for n in (1, 2, 6):
        rest = []
        for rank in range(n):
            ranks(n, rank)
            resumed = make()
            resumed.load_state_dict(state)
            rest.append([batch.tolist() for batch in resumed])
        dealt = [i for step in zip(*rest, strict=True) for batch in step for i in batch]
        assert dealt == list(range(6, 24))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("is_stream", [False, True])
def test_uneven_batches_and_windows(ranks, is_stream, workers):
    """Which batch is the last one is known where there are fewer; until even batches are wanted again."""
    expected = {0: [[0, 1], [4, 5], [8]], 1: [[2, 3], [6, 7]]}
    for rank, batches in expected.items():
        ranks(2, rank)
        accelerator = Accelerator(7, cpu=True, even_batches=False)
        dataset = Shares(9) if is_stream else range(9)
        prepared = accelerator.prepare(DataLoader(dataset, 2, num_workers=workers))
        seen, ends = [], []
        for batch in prepared:
            with accelerator.accumulate():
                seen.append(batch.tolist())
                ends.append(accelerator.sync_gradients)
        assert seen == batches and ends == [False] * (len(batches) - 1) + [True]
        prepared.even_batches = True
        assert len(list(prepared)) == 3


def test_an_own_batch_sampler_whose_end_nobody_knows(ranks):
    class Own(list):
        batch_size = 4

    ranks(2, 1)
    accelerator = Accelerator(7, cpu=True, split_batches=True, even_batches=False)
    batches, ends = accelerator.prepare(DataLoader(range(9), batch_sampler=Own([[0, 1, 2, 3], [4, 5]]))), []
    for batch in batches:
        with accelerator.accumulate():
            ends.append((batch.tolist(), accelerator.sync_gradients))
    assert ends == [([2, 3], True)]
    with pytest.raises(TypeError, match="the number of samples of Own is unknown"):
        len(batches)


def test_a_place_between_two_batches_is_refused(ranks):
    batches = prepared(2)
    at = iter(batches)
    next(at)
    state = batches.state_dict()
    with pytest.raises(ValueError, match="1 batches of 2 samples, over all .* batches of 6, over 3"):
        ranks(3)
        prepared(2).load_state_dict(state)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class Shares(IterableDataset):
    """Every worker has its share of 0, 1, …, size - 1."""

    def __init__(self, size):
        self.size, self.first, self.step = size, 0, 1

    def __iter__(self):
        info = get_worker_info()
        if info is not None:
            self.first, self.step = info.id, info.num_workers
        return iter(range(self.first, self.size, self.step))


def dealt(n, ranks, dataset, **options):
    """For every step: what all ranks got, one after the other, and how many of them are repeated."""
    parts = []
    for rank in range(n):
        ranks(n, rank)
        batches = Accelerator(cpu=True).prepare(DataLoader(dataset, 2, **options))
        parts.append([(batch.tolist(), batches.duplicates) for batch in batches])
    steps = [([i for batch, _ in step for i in batch], step) for step in zip(*parts, strict=True)]
    for _, step in steps:
        assert len({(len(batch), repeated) for batch, repeated in step}) == 1
    return [(samples, step[0][1]) for samples, step in steps]


STREAMS = [(23, 0, 2, False), (23, 0, 3, True), (12, 0, 2, False), (0, 0, 2, False), (23, 2, 2, False),
           (23, 2, 2, True), (7, 3, 2, False), (16, 2, 2, False), (0, 1, 2, False)]


@pytest.mark.parametrize("size, workers, n, drop_last", STREAMS)
def test_a_stream_over_several_ranks(ranks, size, workers, n, drop_last):
    steps = dealt(n, ranks, Shares(size), num_workers=workers, drop_last=drop_last)
    seen = [i for samples, repeated in steps for i in samples[: len(samples) - repeated]]
    copies = max(workers, 1)
    for worker in range(copies):  # each worker's stream is dealt out in its order, up to its end
        own = list(range(worker, size, copies))
        lost = len(own) % (2 * n) if drop_last else 0
        assert [i for i in seen if i % copies == worker] == own[: len(own) - lost]


def test_a_worker_sees_the_stream_itself(ranks):
    def begin_at_100(worker):
        dataset = get_worker_info().dataset
        dataset.size, dataset.first = 106, 100

    class From(Shares):
        def __iter__(self):
            return iter(range(self.first, self.size))

    steps = dealt(2, ranks, From(0), num_workers=1, worker_init_fn=begin_at_100)
    assert steps == [([100, 101, 102, 103], 0), ([104, 105], 0)]


@pytest.mark.parametrize(
    "after, workers", [((2, 2), 0), ((1, 4), 0), ((4, 1), 0), ((1, 1), 0), ((2, 2), 2), ((1, 2), 2)]
)
def test_a_stream_goes_on_with_other_numbers(ranks, after, workers):
    def rest(n, size, state):
        parts = []
        for rank in range(n):
            ranks(n, rank)
            batches = Accelerator(cpu=True).prepare(DataLoader(Shares(48), size, num_workers=workers))
            if state is not None:
                batches.load_state_dict(state)
            parts.append([batch.tolist() for batch in batches])
        return [i for step in zip(*parts, strict=True) for batch in step for i in batch]

    ranks(2)
    batches = Accelerator(cpu=True).prepare(DataLoader(Shares(48), 2, num_workers=workers))
    at = iter(batches)
    for _ in range(4):
        next(at)
    state = batches.state_dict()
    given = rest(2, 2, None)[:16]
    assert sorted(given + rest(*after, state)) == list(range(48))


def test_the_last_batch_is_known_and_a_streams_position_is_right():
    accelerator = Accelerator(2, cpu=True)
    for given in (DataLoader(Stream(), 4), DataLoader(range(10), 4)):
        batches, seen = accelerator.prepare(given), []
        for batch in batches:
            with accelerator.accumulate():
                seen.append((batch.tolist()[0], accelerator.sync_gradients, batches.state_dict()["batches"]))
        assert seen == [(0, False, 1), (4, True, 2), (8, True, 3)]
        assert not accelerator.gradient_state.loaders


def test_a_loop_that_is_left_leaves_nothing_behind():
    accelerator = Accelerator(cpu=True)
    batches = accelerator.prepare(DataLoader(range(4)))
    for _ in batches:
        break
    assert not accelerator.gradient_state.loaders
    assert [b.item() for b in skip_first_batches(accelerator.prepare(DataLoader(range(4))), 3)] == [3]


def test_own_samplers(ranks):
    ranks(2, 1)
    own = DataLoader(range(8), 2, sampler=DistributedSampler(range(8), 2, 1, shuffle=False))
    assert [b.tolist() for b in Accelerator(cpu=True).prepare(own)] == [[1, 3], [5, 7]]  # shared out already
    batches = BatchSampler(SequentialSampler(range(7)), 3, False)
    custom = Accelerator(cpu=True).prepare(DataLoader(range(7), batch_sampler=batches))
    assert [b.tolist() for b in custom] == [[3, 4, 5], [6]] and len(custom) == 2


WRONG = {
    "any order": (
        lambda: prepared_stream(num_workers=2, in_order=False),
        ValueError,
        "in_order=False with num_workers=2",
    ),
    "no batches": (lambda: prepared(batch_size=None), ValueError, "batch_size=None"),
    "split": (
        lambda: prepared_with(dict(split_batches=True), batch_size=5), ValueError,
        "a batch of 5 can't be divided evenly over 2 processes"),
    "split stream": (
        lambda: Accelerator(cpu=True, split_batches=True).prepare(DataLoader(Stream(), 3)), ValueError,
        "a batch of 3 can't be divided evenly over 2 processes"),
    "split without a size": (
        lambda: prepared_with(dict(split_batches=True), batch_sampler=[[0, 1]]), ValueError,
        "the batch sampler has no batch_size"),
    "persistent": (
        lambda: setattr(prepared_stream(num_workers=1, persistent_workers=True), "even_batches", False),
        ValueError, "even_batches=False: the workers of an IterableDataset with persistent_workers=True"),
    "skip": (lambda: skip_first_batches(DataLoader([1]), -1), ValueError, "negative, got -1"),
}


def prepared_with(kwargs, **options):
    return Accelerator(cpu=True, **kwargs).prepare(DataLoader(range(24), **options))


def prepared_stream(**options):
    return Accelerator(cpu=True).prepare(DataLoader(Stream(), 2, **options))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_so(name, ranks):
    ranks(2)
    call, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        call()


@each("placed", [True, False])
def test_batches_are_moved_to_the_device(placed, fake_cuda):
    """Or stay where they are, with what is no tensor."""
    loader = DataLoader([{"x": np.float32(i), "name": "a"} for i in range(4)], 2)
    target = mytorch.device("cuda:1") if placed else None
    batches = list(PreparedLoader(loader, target, GradientState(1)))
    assert [batch["x"].device for batch in batches] == ["cuda:1" if placed else "cpu"] * 2
    assert batches[1]["x"].cpu().tolist() == [2.0, 3.0] and batches[1]["name"] == ["a", "a"]
