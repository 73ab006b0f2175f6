"""Loading in worker processes: the same batches as without, whatever the number of workers."""

import multiprocessing
import os
import random
import signal
import threading

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data
from mytorch.utils.data import ring, twisters
from tests.utils.data.datasets import (
    Augmented,
    Numbers,
    OwnError,
    Pair,
    Stream,
    eventually,
    is_alive,
    kill_itself,
    leave,
    plain,
    raise_at_5,
    segfault,
    triple,
    within,
)


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


@pytest.mark.parametrize("with_function", [False, True])
def test_data_that_draw_nothing_are_not_seeded(with_function, monkeypatch):
    seeded = []
    monkeypatch.setattr(twisters.NumPyTwister, "set", lambda self, words: seeded.append(words))
    parts = [data.TensorDataset(mytorch.arange(3)), data.Subset([4, 5, 6], [0, 2])]
    collate = {"collate_fn": str} if with_function else {}
    for dataset in (*parts, data.ConcatDataset(parts), np.arange(3), mytorch.arange(3)):
        assert len(list(data.DataLoader(dataset, 1, **collate))) == len(dataset)
    assert bool(seeded) == with_function
    list(data.DataLoader(data.TensorDataset(Numbers()), 1))
    assert seeded


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


# What travels


STRUCTURES = {
    "dict": {"a": np.arange(3), 7: [1, 2.5, None], "nested": {"x": (np.float32(2), "text", b"bytes")}},
    "named tuple": Pair(np.ones((2, 2), np.float16), Pair("x", None)),
    "tuple": (np.arange(6).reshape(2, 3).T, np.asfortranarray(np.ones((2, 3))), np.arange(10)[::-2]),
    "empty": (np.zeros((0, 3), np.float32), np.zeros((2, 0)), [], {}, ()),
    "0-d": (np.array(3.5), np.array(True)),
    "dtypes": [
        np.arange(3).astype(d) for d in ("?", "u1", "i2", "f2", "f8", "c8", ">i4", "datetime64[s]", "U3")
    ],
    "records": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "objects": np.array([None, "a", 3], object),
    "tensors": (mytorch.arange(3), mytorch.ones(2, 2, requires_grad=True), mytorch.Array([1.5])),
    "strings": ["a" * 100_000, ""],
    "large": np.arange(300_000),
}


def identical(got, want):
    assert type(got) is type(want)
    if isinstance(want, (mytorch.Tensor, mytorch.Array)):
        assert getattr(got, "requires_grad", None) == getattr(want, "requires_grad", None)
        got, want = got.detach().numpy(), want.detach().numpy()
    if isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got, want)
        assert got.flags.writeable
    elif isinstance(want, dict):
        assert list(got) == list(want)
        [identical(got[key], want[key]) for key in want]
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        [identical(g, w) for g, w in zip(got, want, strict=True)]
    else:
        assert got == want


@pytest.mark.parametrize("is_linux", [True, False])
def test_structures_arrive_as_they_are(is_linux, monkeypatch):
    if not is_linux:  # an unlinked file in the temporary folder does as well
        monkeypatch.delattr(os, "memfd_create")
    values = list(STRUCTURES.values())
    loader = data.DataLoader(values, batch_size=None, collate_fn=lambda x: x, num_workers=2)
    for got, want in zip(loader, values, strict=True):
        identical(got, want)


def test_a_mapped_file_arrives_as_an_array(tmp_path):
    np.arange(1000, dtype=np.int16).tofile(tmp_path / "x.bin")
    mapped = np.memmap(tmp_path / "x.bin", np.int16, "r")
    loader = data.DataLoader([0, 500], batch_size=None, collate_fn=lambda i: mapped[i : i + 9], num_workers=1)
    got = list(loader)
    assert [type(x) for x in got] == [np.ndarray] * 2
    assert [x.tolist() for x in got] == [list(range(9)), list(range(500, 509))]


def test_arrays_are_not_pickled(monkeypatch):
    pickles, loads = [], ring.pickle.loads
    monkeypatch.setattr(ring.pickle, "loads", lambda x, **o: pickles.append(len(x)) or loads(x, **o))
    big = np.arange(100_000)
    loader = data.DataLoader([0] * 4, batch_size=None, collate_fn=lambda i: big[::2], num_workers=1)
    assert all(batch.tolist() == big[::2].tolist() for batch in loader)
    assert len(pickles) == 4 and max(pickles) < 500


def test_batches_of_any_size():
    sizes = [1, 1000, 10, 100_000, 3, 1_000_000, 500_000, 1, 2_000_000]
    loader = data.DataLoader(
        sizes, batch_size=None, collate_fn=lambda n: np.full(n, n), num_workers=2, prefetch_factor=1
    )
    for n, batch in zip(sizes * 1, loader, strict=True):
        assert len(batch) == n and (batch == n).all()


def test_what_is_kept_is_not_overwritten():
    dataset = Numbers(60, lambda i: np.full(5000, i))
    whole = list(data.DataLoader(dataset, 2, num_workers=2))
    loader = data.DataLoader(dataset, 2, num_workers=2, persistent_workers=True)
    views = [batch[1, :3] for batch in loader]
    again = [batch + 0 for batch in loader]
    for k in range(30):
        assert (whole[k].numpy() == [[2 * k], [2 * k + 1]]).all()
        assert views[k].tolist() == [2 * k + 1] * 3
        assert (again[k].numpy() == whole[k].numpy()).all()
    whole[0].add_(1)  # it is the user's
    assert (whole[0].numpy() == [[1], [2]]).all()


def test_what_is_kept_does_not_take_a_block_each():
    loader = data.DataLoader(Numbers(60, lambda i: np.full(5000, i)), 1, num_workers=2, prefetch_factor=1)
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(50)]
    blocks = sum(len(worker.mirror.blocks) for worker in iterator._pool.workers)
    assert 4 < blocks <= 4 + 2 * 2  # with the user, and on the way
    assert [batch[0, 0].item() for batch in kept] == list(range(50))


def test_what_a_worker_keeps_is_not_overwritten():
    class Caching(Numbers):
        kept = []

        def collate(self, samples):
            self.kept.append(data.default_collate(samples))
            assert [k[0, 0].item() for k in self.kept] == list(range(len(self.kept)))
            return self.kept[-1]

    dataset = Caching(20, lambda i: np.full(100, i))
    assert len(list(data.DataLoader(dataset, 1, num_workers=1, collate_fn=dataset.collate))) == 20


def test_memory_is_used_again():
    def addresses(loader):
        return {batch.data._array.__array_interface__["data"][0] for batch in loader}

    dataset = Numbers(100, lambda i: np.zeros(10_000))
    loader = data.DataLoader(dataset, 1, num_workers=2, persistent_workers=True)
    assert len(addresses(loader) | addresses(loader)) <= 2 * (2 + 2)


# Errors

ERRORS = {
    "value": ValueError("what"),
    "key": KeyError("which"),
    "division": ZeroDivisionError(),
    "of two arguments": OwnError(1, 2),
    "unicode": UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    "stop": StopIteration(),
    "stop stream": EOFError("file"),
    "pipe": BrokenPipeError(32, "disk"),
    "not implemented": NotImplementedError("later"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_arrive_with_index_and_traceback(name):
    dataset = Numbers(10, raise_at_5(ERRORS[name]))
    iterator = iter(data.DataLoader(dataset, 2, num_workers=2))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its type is compared
        next(iterator)
    message = str(raised.value)
    assert "worker process 0" in message and "sample 5, in batch 2" in message
    assert "in act\n    raise error\n" in message and type(ERRORS[name]).__name__ in message
    theirs = iter(torch.utils.data.DataLoader(dataset, 2, num_workers=2))
    with pytest.raises(Exception) as expected:  # noqa: PT011
        [next(theirs) for _ in range(3)]
    if name not in ("unicode", "of two arguments", "stop"):
        assert raised.type is expected.type
    else:  # PyTorch's is a RuntimeError where a type doesn't take a message; ours a base that does
        assert issubclass(type(ERRORS[name]), raised.type) or raised.type is RuntimeError
    assert [b.tolist() for b in iterator] == [[6, 7], [8, 9]]  # the user may go on


def test_an_error_of_a_class_that_only_the_worker_knows():
    def act(i):
        class Strange(ValueError):
            pass

        raise Strange("odd")

    with pytest.raises(ValueError, match=r"Caught .*Strange in DataLoader worker process 0[^$]*sample 0"):
        next(iter(data.DataLoader(Numbers(2, act), num_workers=1)))


PLACES = {
    "collate_fn": ({"collate_fn": lambda samples: 1 / 0}, r"the collate_fn of samples \[0, 1\], in batch 0"),
    "single": ({"batch_size": None, "collate_fn": lambda x: 1 / 0}, "the collate_fn of sample 0, in batch 0"),
    "worker_init_fn": ({"worker_init_fn": lambda i: 1 / 0}, "at its worker_init_fn"),
    "unpicklable": ({"collate_fn": lambda samples: 1 / (lambda: 0)()}, "collate_fn"),
}


@pytest.mark.parametrize("name", PLACES)
def test_where_an_error_was(name):
    options, place = PLACES[name]
    with pytest.raises(ZeroDivisionError, match=place):
        next(iter(data.DataLoader(Numbers(), **{"batch_size": 2, "num_workers": 1} | options)))


def test_a_batch_that_cannot_be_sent():
    loader = data.DataLoader(Numbers(4), 2, num_workers=1, collate_fn=lambda x: lambda: 0)
    with pytest.raises(Exception, match="batch 0, to send it"):
        next(iter(loader))


def test_errors_of_streams_and_many_samples_say_where():
    class Failing(Stream):
        def __iter__(self):
            yield from range(3)
            raise ValueError("no more")

    with pytest.raises(ValueError, match="sample 3 of its stream, in batch 1"):
        list(data.DataLoader(Failing(), 2, num_workers=1))

    class Batched(Numbers):
        def __getitems__(self, indices):
            raise ValueError("no")

    with pytest.raises(ValueError, match=r"samples \[0, 1, 2, 3, 4, 5, 6, 7, …\], in batch 0"):
        next(iter(data.DataLoader(Batched(), 9, num_workers=1)))


def test_stop_iteration_does_not_end_a_pass_in_silence():
    with pytest.raises(RuntimeError, match="batch 5: the dataset raised StopIteration"):
        list(data.DataLoader(Numbers(10, raise_at_5(StopIteration()))))


# Death

DEATHS = {
    "kill": (
        lambda: kill_itself(signal.SIGKILL),
        r"was killed by signal 9 \(SIGKILL\), as happens when memory",
    ),
    "terminate": (lambda: kill_itself(signal.SIGTERM), r"was killed by signal 15 \(SIGTERM\)"),
    "segfault": (segfault, r"was killed by signal 11 \(SIGSEGV\)"),
    "exit": (leave, "exited with code 3"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_dead_worker_is_named(name):
    die, how = DEATHS[name]
    loader = data.DataLoader(Numbers(20, lambda i: die() if i == 13 else i), 2, num_workers=2)
    iterator = iter(loader)
    with (
        pytest.raises(
            RuntimeError, match=rf"worker 0 \(pid \d+\) {how}.*while loading sample 13, in batch 6"
        ),
        within(20),
    ):
        list(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_worker_that_dies_while_nobody_waits_is_named_once_it_is_wanted():
    last = multiprocessing.get_context("fork").Value("q", -1)  # of the samples 1 and 3, which worker 1 loads

    def seen(i):
        if i % 2:
            last.value = i
        return i

    loader = data.DataLoader(Numbers(100, seen), 1, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    pids, pool = [worker.process.pid for worker in iterator._pool.workers], iterator._pool
    eventually(lambda: last.value == 3 and pool.workers[1].status[0] not in pool._requests)
    os.kill(pids[1], signal.SIGKILL)
    eventually(lambda: not is_alive(pids[1]))
    with pytest.raises(RuntimeError, match=rf"worker 1 \(pid {pids[1]}\).*SIGKILL.*, between two batches"):
        list(iterator)  # what it had loaded may come first
    eventually(lambda: not is_alive(pids[0]))
    assert [b.tolist() for b in loader] == [[i] for i in range(100)]  # with new workers


def test_timeout():
    loader = data.DataLoader(
        Numbers(4, lambda i: threading.Event().wait() if i == 3 else i), 2, num_workers=2, timeout=0.2
    )
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(
        RuntimeError, match=r"timed out after 0.2 s: batch 1 of worker 1 .* it is at sample 3"
    ):
        next(iterator)


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
    assert all(map(is_alive, second)) == stays
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
