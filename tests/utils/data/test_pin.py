"""Pinned memory, and batches that go to a GPU ahead: on the strict stand-in for CuPy."""

import warnings
from collections import ChainMap

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data
from mytorch.utils.data.pin import pinned_copy
from tests.every import every
from tests.on_device import same
from tests.strict_cupy import device
from tests.utils.data.datasets import Numbers, Pair, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


def sample(i):
    return {
        "x": np.full((3, 4), i, np.float32),
        "pair": Pair(mytorch.arange(2), "text"),
        "i": i,
        "t": (i, 2.5),
    }


def numbers(batch):
    return batch["x"][:, 0, 0].tolist()


@pytest.fixture
def pinned(fake_cuda, monkeypatch):
    """What was pinned: sizes by address, of memory of CuPy's pool and of registered memory."""
    memory, kept = {}, []
    alloc = fake_cuda.cuda.alloc_pinned_memory

    def allocate(size):
        out = alloc(size)
        memory[out.ptr] = size
        kept.append(out)
        return out

    monkeypatch.setattr(fake_cuda.cuda, "alloc_pinned_memory", allocate)
    return ChainMap(device.registered, memory)


def is_pinned(memory, tensor):
    address = tensor.data._array.__array_interface__["data"][0]
    return any(start <= address and address + tensor.nbytes <= start + size for start, size in memory.items())


def test_without_a_gpu_there_is_a_warning():
    message = "'pin_memory' argument is set as true but no accelerator is found"
    with pytest.warns(UserWarning, match=message):
        theirs = [b.tolist() for b in torch.utils.data.DataLoader(range(3), pin_memory=True)]
    for workers in (0, 1):
        with pytest.warns(UserWarning, match=message):
            ours = [b.tolist() for b in data.DataLoader(range(3), num_workers=workers, pin_memory=True)]
        assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("keeps", [False, True])
def test_batches_lie_in_pinned_memory(workers, keeps, pinned):
    kept = []
    loader = data.DataLoader(Numbers(20, sample), 2, num_workers=workers, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k, batch in enumerate(loader):
            assert numbers(batch) == [2 * k, 2 * k + 1] and type(batch["pair"]) is Pair
            assert batch["pair"].b == ("text", "text")
            tensors = batch["x"], batch["pair"].a, batch["i"], batch["t"][1]
            assert every(is_pinned(pinned, t) for t in tensors)
            kept.append(batch if keeps else None)
    for k, batch in enumerate(kept):
        assert batch is None or numbers(batch) == [2 * k, 2 * k + 1]


def test_blocks_are_pinned_once_and_unpinned_in_the_end(pinned, fake_cuda, monkeypatch):
    calls = []
    register = fake_cuda.cuda.runtime.hostRegister
    runtime = vars(fake_cuda.cuda.runtime)
    monkeypatch.setitem(runtime, "hostRegister", lambda *a: calls.append(a) or register(*a))
    loader = data.DataLoader(Numbers(40, sample), 2, num_workers=2, pin_memory=True, persistent_workers=True)
    for _ in range(2):
        for batch in loader:
            assert is_pinned(pinned, batch["x"])
    assert 2 <= len(calls) == len(device.registered) == len(pinned) <= 10
    assert every(flags == 1 and address % 4096 == 0 and size % 4096 == 0 for address, size, flags in calls)
    del loader
    assert len(pinned) == 1  # the block of the last batch
    del batch
    assert not pinned


def test_blocks_that_are_replaced_are_unpinned(pinned):
    sizes = [10, 10_000, 100, 1_000_000, 10, 2_000_000]
    loader = data.DataLoader(
        sizes,
        None,
        collate_fn=np.ones,
        num_workers=1,
        prefetch_factor=1,
        pin_memory=True,
        persistent_workers=True,
    )
    for size, batch in zip(sizes, loader, strict=True):
        assert batch.sum() == size and is_pinned(pinned, mytorch.from_numpy(batch))
    blocks = [block for worker in loader._pool.workers for block in worker.mirror.blocks.values()]
    assert {block.address: block.size for block in blocks} == device.registered
    assert sum(device.registered.values()) < 8 * 2 * sum(sizes)
    del batch, blocks, loader
    assert not device.registered


def test_a_pass_that_is_broken_off_unpins(pinned):
    for stays in (False, True):
        loader = data.DataLoader(
            Numbers(40, sample), 2, num_workers=2, pin_memory=True, persistent_workers=stays
        )
        for batch in loader:
            assert is_pinned(pinned, batch["x"]) and device.registered
            break
        del batch, loader
        assert not device.registered


def test_where_blocks_cannot_be_pinned_batches_are_copied(pinned, fake_cuda, monkeypatch):
    def refuse(*args):
        raise fake_cuda.cuda.runtime.CUDARuntimeError(101)

    monkeypatch.setitem(vars(fake_cuda.cuda.runtime), "hostRegister", refuse)
    for k, batch in enumerate(data.DataLoader(Numbers(20, sample), 2, num_workers=2, pin_memory=True)):
        assert numbers(batch) == [2 * k, 2 * k + 1] and is_pinned(pinned, batch["x"])


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_pinned_copy(shape, fake_cuda):
    x = np.ones(shape, np.float16)
    y = pinned_copy(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype) and (y == x).all() and y is not x


# The device


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "pin_memory": True}])
@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_prefetcher(options, device, pinned):
    loader = data.DataLoader(Numbers(20, sample), 3, **options)
    ahead = data.DevicePrefetcher(loader, device)
    assert len(ahead) == len(loader) == 7
    for _ in range(2):
        batches = list(ahead)
        assert [numbers(b) for b in batches] == [list(range(k, min(k + 3, 20))) for k in range(0, 20, 3)]
        for batch, want in zip(batches, loader, strict=True):
            assert batch["x"].device == batch["pair"].a.device == device
            assert type(batch["pair"]) is Pair and batch["pair"].b == want["pair"].b
            if device != "cpu":
                same(batch["x"], want["x"], device)


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_the_position_is_that_of_the_batches_that_were_used(device, pinned):
    loader = data.DataLoader(Numbers(8, sample), 2)
    counts = [loader.state_dict()["batches"] for _ in data.DevicePrefetcher(loader, device)]
    assert counts == [1, 2, 3, 4]


def test_copies_run_ahead_in_a_stream_of_their_own(pinned, fake_cuda, monkeypatch):
    """Each copy waits for what the current stream did before, and the current stream for the copy."""
    log = []
    raw = fake_cuda.cuda.Stream
    monkeypatch.setattr(
        raw, "wait_event", lambda self, event: log.append(("copies" if self.ptr else "current", "waits"))
    )
    upload = fake_cuda.ndarray.set

    def set(self, array, stream=None):
        log.append("copy in " + ("copies" if fake_cuda.cuda.get_current_stream().ptr else "current"))
        return upload(self, array, stream)

    monkeypatch.setattr(fake_cuda.ndarray, "set", set)
    for k, _ in enumerate(data.DevicePrefetcher([np.ones(2), np.ones(3), np.ones(4)], "cuda:1")):
        log.append(f"use {k}")
    one = [("copies", "waits"), "copy in copies"]
    use = [("current", "waits")]
    assert log == one * 2 + use + ["use 0"] + one + use + ["use 1"] + use + ["use 2"]


def test_sources_stay_until_their_copies_are_done(fake_cuda, monkeypatch):
    class Source(np.ndarray):
        alive = 0

        def __array_finalize__(self, other):
            Source.alive += 1

        def __del__(self):
            Source.alive -= 1

    done = []
    monkeypatch.setattr(fake_cuda.cuda.Event, "done", property(lambda self: bool(done)))
    synchronized = []
    monkeypatch.setattr(fake_cuda.cuda.Event, "synchronize", lambda self: synchronized.append(self))
    batches = (np.ones(3).view(Source) for _ in range(6))
    iterator = iter(data.DevicePrefetcher(batches, "cuda:0"))
    next(iterator)
    assert Source.alive == 2 and not synchronized
    next(iterator)
    assert Source.alive == 2 and len(synchronized) == 1
    del iterator
    assert len(synchronized) == 3 and not Source.alive
