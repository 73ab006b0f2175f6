"""Programs run on the batches of sources; results are those of single calls, in order; errors end the run."""

import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch import nn, optim
from mytorch.compiler import capture, thaw
from mytorch.nn import functional as F
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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_smaller_last_batch_of_a_loader(workers):
    data = TensorDataset(DATA[:18], LABELS[:18])
    program, seen = capture(lambda x, y: x.sum(-1) * y, DATA[:4], LABELS[:4]), []
    sinks = np.zeros(18, np.float32), seen, lambda y: seen.append(y)
    want = (DATA[:18].sum(-1) * LABELS[:18]).numpy()
    for sink in sinks:
        assert program.stream(DataLoader(data, 4, num_workers=workers), sink).run() == 5
    for found in (sinks[0], *[mytorch.cat(part).numpy() for part in (seen[:5], seen[5:])]):
        np.testing.assert_allclose(found, want, 1e-6)
    with pytest.raises(ValueError, match="the last batch has 2 rows, and step, which isn't a function of"):
        training().stream(DataLoader(data, 4)).run()


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


def threads():
    return {thread.name for thread in threading.enumerate()} & {"read", "write"}


@pytest.mark.parametrize(("slow_source", "slow_sink"), [(True, False), (False, True), (True, True)])
def test_how_many_batches_live(slow_source, slow_sink):
    """Two are read ahead, and two results wait for the sink, besides those in use."""
    batches, results, most, seen = [], [], [], []

    def count():
        most.append([sum(x() is not None for x in made) for made in (batches, results)])

    def source():
        for k in range(30):
            time.sleep(0.003 * slow_source)
            x = DATA[:4] + k
            batches.append(weakref.ref(x))
            yield x
            del x

    def sink(y):
        time.sleep(0.003 * slow_sink)
        seen.append(y[0, 0].item())
        count()

    for y in rows().stream(source(), sink):
        results.append(weakref.ref(y))
        count()
    assert max(x for x, _ in most) <= 4 >= max(y for _, y in most)
    assert seen == sorted(seen) and len(seen) == 30


def test_workers_of_a_loader():
    loader = DataLoader(TensorDataset(DATA, LABELS), 4, num_workers=2)
    sink = np.zeros((20, 3), np.float32)
    program = capture(lambda x, y: x * 2 + y[:, None], DATA[:4], LABELS[:4])
    assert program.stream(loader, sink).run() == 5
    assert (sink == (DATA * 2 + LABELS[:, None]).numpy()).all() and not threads()


def test_errors_of_the_source():
    def source():
        yield DATA[:4]
        raise OSError("the disk is gone")

    results = []
    with pytest.raises(OSError, match="the disk is gone") as error:
        rows().stream(source(), results.append).run()
    assert len(results) == 1 and not threads()
    noted(error, "in the source of a stream, at batch 1, counted from 0")


def noted(error, text):
    if hasattr(error.value, "add_note"):
        assert error.value.__notes__ == [text]


HELD = """
import sys, time
import mytorch

def sink(y):
    time.sleep(0.2)
    print("written", flush=True)

stream = iter(mytorch.capture(lambda x: x * 2, mytorch.ones(4)).stream(mytorch.ones(20), sink))
next(stream), next(stream)
"""


def test_what_is_computed_is_written_at_the_end_of_the_process():
    """Also if the iterator lives until then."""
    args = [sys.executable, "-c", HELD]
    found = subprocess.run(args, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "written\n" * 2 and not found.stderr


def test_errors_of_the_program():
    with pytest.raises(ValueError, match="expected %0") as error:
        rows().stream([DATA[:4], DATA[:3, :2]]).run()
    noted(error, "in the program of a stream, at batch 1, counted from 0")


def failing(y):
    raise OSError("the disk is full")


def test_errors_of_the_sink():
    stream = rows().stream((DATA[:4] for _ in range(1000)), failing)
    with pytest.raises(OSError, match="the disk is full") as error:
        stream.run()
    assert stream.batches < 5 and not threads()
    noted(error, "in the sink of a stream, at batch 0, counted from 0")


def test_errors_of_the_sink_while_the_source_waits():
    goes_on = threading.Event()

    def source():
        yield DATA[:4]
        goes_on.wait(20)

    with pytest.raises(OSError, match="the disk is full"):
        rows().stream(source(), failing).run()
    assert not goes_on.is_set() and threads() == {"read"}  # which ends when the source gives something
    goes_on.set()


def test_nothing_is_written_behind_an_error(tmp_path):
    """Later rows don't take the place of the one that failed; and there is no position to continue from."""
    written = []

    def sink(y):
        if len(written) == 1:
            raise OSError("the disk is full")
        written.append(y)

    program = rows()
    stream = program.stream(DATA, sink)
    with pytest.raises(OSError):
        stream.run()
    assert len(written) == 1
    for freeze in (stream.freeze, program.freeze):
        with pytest.raises(OSError, match="the disk is full"):
            freeze(tmp_path / "p.safetensors")
    with pytest.raises(OSError, match="the disk is full"):
        stream.run()
    assert program.stream(DATA).run() == 5


def test_interrupts(tmp_path):
    sink, stream = memory_map(tmp_path / "y.npy"), None
    stream = rows().stream((x for x in DATA.split(4)), sink)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            if stream.batches == 3:
                raise KeyboardInterrupt
    assert (np.load(tmp_path / "y.npy")[:12] == (DATA * 2 + 1).numpy()[:12]).all()
    assert not (sink[12:] != 0).any() and not threads()


BLOCKED = """
import signal, sys, threading
import numpy as np
import mytorch

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it

def source():
    yield from [mytorch.ones(4, 3) * k for k in range(3)]
    print("waits", flush=True)
    threading.Event().wait()

sink = np.lib.format.open_memmap(sys.argv[1], "w+", np.float32, (20, 3))
mytorch.capture(lambda x: x * 2, mytorch.ones(4, 3)).stream(source(), sink).run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_a_source_that_waits_does_not_keep_the_process(tmp_path):
    args = [sys.executable, "-c", BLOCKED, str(tmp_path / "y.npy")]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.1)  # until what was read is computed
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert errors.count("Traceback") == 1 and errors.endswith("KeyboardInterrupt\n")
    assert np.load(tmp_path / "y.npy")[:13, 0].tolist() == [0] * 4 + [2] * 4 + [4] * 4 + [0]


@pytest.mark.parametrize(("source", "sink", "error", "message"), [
    ([DATA[:4, :2]], None, ValueError, r"expected %0: float32\[4, 3\].*, got float32\[4, 2\]"),
    ([DATA[:5]], None, ValueError, r"expected %0: float32\[4, 3\].*, got float32\[5, 3\]"),
    ([DATA[:0]], None, ValueError, r"expected %0: float32\[4, 3\].*, got float32\[0, 3\]"),
    ([DATA[:2].double()], None, ValueError, r"expected %0: float32\[4, 3\].*, got float64\[2, 3\]"),
    ((DATA, DATA), None, ValueError, r"takes %0: float32\[4, 3\], the source has the shapes"),
    (DATA, 5, TypeError, "a sink is an array, a list or a function, got int"),
    (DATA, np.zeros((9, 3), "f"), ValueError, r"float32\[9, 3\] doesn't take float32\[4, 3\] at row 8"),
    (DATA, np.zeros((20, 3)), ValueError, r"float64\[20, 3\] doesn't take float32\[4, 3\] at row 0"),
    (DATA, (np.zeros((20, 3), "f"), 5), ValueError, "1 results, and sinks for 2"),
    (5, None, TypeError, "'int' object is not iterable"),
])
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


def test_the_program_freezes_its_stream(tmp_path):
    """It continues in another process, bit for bit; a stream that has come to its end leaves no position."""
    path, losses = tmp_path / "p.safetensors", []
    with F.use_fused(False):
        want = [loss.item() for loss in training().stream(LOADERS["shuffled"]())]
        program = training()
        for number, _ in enumerate(program.stream(LOADERS["shuffled"](), losses)):
            if number == 1:
                break
        program.freeze(path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from compiler.test_streaming import *\n"
        "with F.use_fused(False): print([x.item() for x in thaw(sys.argv[2]).stream(LOADERS['shuffled']())])"
    )
    args = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(path)]
    found = subprocess.run(args, capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == str(want[2:]) and len(losses) == 2
    program.stream([]).run()
    program.freeze(path)
    assert thaw(path).position is None


def test_a_sink_can_not_freeze(tmp_path):
    program = rows()
    with pytest.raises(RuntimeError, match="freeze.. of a stream in its sink"):
        program.stream(DATA, lambda y: program.freeze(tmp_path / "p.safetensors")).run()
