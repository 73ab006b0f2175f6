"""Programs run on the batches of sources; results are those of single calls, in order; errors end the run."""

import threading

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.nn import functional as F
from mytorch.stream.programs import capture, thaw
from mytorch.utils.data import DataLoader, TensorDataset

DATA = mytorch.arange(60.0).view(20, 3).sin()
LABELS = mytorch.arange(20) % 2


def rows():
    return capture(lambda x: x * 2 + 1, DATA[:4])


def memory_map(path, x=None, shape=(20, 3)):
    made = np.lib.format.open_memmap(path, "w+", np.float32, shape if x is None else tuple(x.shape))
    made[...] = 0 if x is None else x.numpy()
    return made


SOURCES = {
    "a tensor": lambda path: DATA,
    "a memory map": lambda path: memory_map(path / "x.npy", DATA),
    "a tuple": lambda path: (DATA,),
    "a list": lambda path: [DATA[k : k + 4] for k in range(0, 20, 4)],
    "an iterator of lists": lambda path: ([x] for x in DATA.split(4)),
    "a loader": lambda path: DataLoader(TensorDataset(DATA), 4),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name, tmp_path):
    stream = rows().stream(SOURCES[name](tmp_path))
    assert mytorch.equal(mytorch.cat(list(stream)), DATA * 2 + 1) and stream.batches == 5


def test_sinks(tmp_path):
    sinks = {"list": [], "array": np.zeros((20, 3), np.float32), "map": memory_map(tmp_path / "y.npy")}
    seen = []
    for sink in (*sinks.values(), lambda y: seen.append((y, threading.current_thread()))):
        assert rows().stream(DATA, sink).run() == 5
    want = DATA * 2 + 1
    assert mytorch.equal(mytorch.cat(sinks["list"]), want)
    assert mytorch.equal(mytorch.cat([y for y, _ in seen]), want)
    assert threading.main_thread() not in {thread for _, thread in seen}
    assert (sinks["array"] == want.numpy()).all()
    assert (np.load(tmp_path / "y.npy") == want.numpy()).all()
    several = np.zeros((20, 3), np.float32), np.zeros(5, np.float32)
    capture(lambda x: (x * 2, x.sum()), DATA[:4]).stream(DATA, several).run()
    assert (several[0] == DATA.numpy() * 2).all()
    assert np.allclose(several[1], DATA.view(5, 12).sum(1).numpy(), atol=1e-6)


def test_several_inputs():
    program = capture(lambda x, y: (x.sum(-1), y + 1), DATA[:4], LABELS[:4])
    sinks = np.zeros(20, np.float32), np.zeros(20, np.int64)
    program.stream((DATA, LABELS), sinks).run()
    assert np.allclose(sinks[0], DATA.sum(-1).numpy()) and (sinks[1] == LABELS.numpy() + 1).all()


def test_the_source_is_not_written_to():
    before = DATA.clone()
    capture(lambda x: x.add_(1), DATA[:4]).stream(DATA).run()
    assert mytorch.equal(DATA, before)


def test_a_smaller_last_batch():
    sink, model = np.zeros((18, 2), np.float32), nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))
    assert capture(model, DATA[:4]).stream(DATA[:18], sink).run() == 5
    np.testing.assert_allclose(sink, model(DATA[:18]).numpy(force=True), 1e-6)
    for f in (lambda x: x - x.mean(0), lambda x: x.cumsum(0), lambda x: x.t() @ x, lambda x: x[0]):
        with pytest.raises(ValueError, match="the last batch has 2 rows, .* takes 4"):
            capture(f, DATA[:4]).stream(DATA[:18]).run()


def test_back_pressure():
    """The source is read at most two batches ahead, and two results wait for the sink."""
    read, written, goes_on = [], [], threading.Event()

    def source():
        for k in range(20):
            read.append(k)
            yield DATA[:4]

    def sink(y):
        goes_on.wait(10)
        written.append(y)

    stream = iter(rows().stream(source(), sink))
    next(stream), next(stream)
    assert len(read) <= 4 and not written
    goes_on.set()
    assert len(list(stream)) == 18 and len(written) == 20
    slow = iter(rows().stream(source()))
    read.clear()
    next(slow)
    threading.Event().wait(0.05)
    assert len(read) <= 3
    slow.close()


def test_errors_of_the_source():
    def source():
        yield DATA[:4]
        raise OSError("the disk is gone")

    results = []
    with pytest.raises(OSError, match="the disk is gone"):
        rows().stream(source(), results.append).run()
    assert len(results) == 1


def test_errors_of_the_sink():
    def sink(y):
        raise OSError("the disk is full")

    stream = rows().stream((DATA[:4] for _ in range(1000)), sink)
    with pytest.raises(OSError, match="the disk is full"):
        stream.run()
    assert stream.batches < 5


def test_interrupts():
    written, stream = [], None

    def source():
        for _ in range(100):
            yield DATA[:4]

    stream = rows().stream(source(), written.append)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            if stream.batches == 3:
                raise KeyboardInterrupt
    assert len(written) == 3
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("write") for name in names)


@pytest.mark.parametrize(("source", "sink", "error", "message"), [
    ([DATA[:2]], None, ValueError, r"expected %0: float32\[4, 3\].*, got float32\[2, 3\]"),
    ((DATA, DATA), None, ValueError, r"takes %0: float32\[4, 3\], the source has the shapes"),
    (DATA, 5, TypeError, "a sink is an array, a list or a function, got int"),
    (DATA, np.zeros((9, 3), "f"), ValueError, r"float32\[9, 3\] doesn't take float32\[4, 3\] at row 8"),
    (DATA, np.zeros((20, 3)), ValueError, r"float64\[20, 3\] doesn't take float32\[4, 3\] at row 0"),
    (DATA, (np.zeros((20, 3), "f"), 5), ValueError, "1 results, and sinks for 2"),
    (5, None, TypeError, "'int' object is not iterable"),
])  # fmt: skip
def test_wrong_arguments(source, sink, error, message):
    with pytest.raises(error, match=message):
        rows().stream(source, sink).run()


def training():
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = optim.AdamW(model.parameters(), 0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return capture(step, DATA[:4], LABELS[:4])


class Noisy(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + mytorch.randn(3), y


LOADERS = {
    "arrays": lambda: (DATA, LABELS),
    "shuffled": lambda: DataLoader(TensorDataset(DATA, LABELS), 4, shuffle=True),
    "random": lambda: DataLoader(Noisy(DATA, LABELS), 4, shuffle=True),
    "a list": lambda: [(DATA[k : k + 4], LABELS[k : k + 4]) for k in range(0, 20, 4)],
}


@pytest.mark.parametrize("name", LOADERS)
def test_frozen_in_the_middle(name, tmp_path):
    """The position, the rows of the sink and the order of a shuffled loader are continued."""
    with F.use_fused(False):
        whole, losses = np.zeros(5, np.float32), np.zeros(5, np.float32)
        training().stream(LOADERS[name](), whole).run()
        stream = training().stream(LOADERS[name](), losses)
        for _ in stream:
            if stream.batches == 2:
                stream.freeze(tmp_path / "p.safetensors")
                break
        assert (losses[:2] == whole[:2]).all() and (losses[2:] == 0).all()
        mytorch.manual_seed(99)
        program = thaw(tmp_path / "p.safetensors")
        stream = program.stream(LOADERS[name](), losses)
        assert stream.batches == 2 and stream.run() == 5
        assert (losses == whole).all()
        assert program.stream(LOADERS[name]()).run() == 5  # the next pass is a whole one
