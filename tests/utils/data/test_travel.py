"""What workers send: any structure arrives as it is, arrays in shared memory that is used again."""

import os

import numpy as np
import pytest

import mytorch
from mytorch.utils import data
from mytorch.utils.data import ring
from tests.every import every
from tests.utils.data.datasets import Numbers, Pair, within


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


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
    assert every(batch.tolist() == big[::2].tolist() for batch in loader)
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
