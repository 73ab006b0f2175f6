"""An index that is out of bounds on a GPU (the strict stand-in for CuPy): the next call that waits raises
what the CPU raises at once."""

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.cuda import graphs
from mytorch.nn import functional as F
from tests.on_device import DEVICE, never_waiting

pytestmark = pytest.mark.usefixtures("fake_cuda")

X = np.arange(20, dtype="float32").reshape(4, 5)
LOGITS = np.zeros((3, 5), "float32")


def write(x, index, value):
    x[index] = value
    return x


# name: (index, a call with the function that makes a tensor, and the index as one, two parts of the error)
CASES = {
    "gather": ([[7], [0]], lambda t, i: t(X).gather(1, i), "gather(): index 7", "size 5"),
    "gather, below 0": ([[-1], [0]], lambda t, i: t(X).gather(1, i), "gather(): index -1", "size 5"),
    "take_along_dim": (
        [[-6], [0], [0], [0]], lambda t, i: t(X).take_along_dim(i, 1), "gather(): index -1", "5",
    ),
    "scatter": ([[5]], lambda t, i: t(X).scatter(1, i, 1.0), "scatter(): index 5", "size 5"),
    "scatter_": ([[9]], lambda t, i: t(X).scatter_(0, i, t([[1.0]])), "scatter(): index 9", "size 4"),
    "scatter_add": (
        [[5]], lambda t, i: t(X).scatter_add(1, i, t([[1.0]])), "scatter_add(): index 5", "size 5",
    ),
    "scatter_reduce": (
        [[5]], lambda t, i: t(X).scatter_reduce(1, i, t([[1.0]]), "amax"),
        "scatter_reduce(): index 5", "size 5",
    ),
    "index_select": ([0, 4], lambda t, i: t(X).index_select(0, i), "index_select(): index 4", "size 4"),
    "index_add": ([4], lambda t, i: t(X).index_add(0, i, t(X[:1])), "index_add(): index 4", "size 4"),
    "index_copy": ([5], lambda t, i: t(X).index_copy(1, i, t(X[:, :1])), "index_copy(): index 5", "size 5"),
    "index_fill": ([-6], lambda t, i: t(X).index_fill(1, i, 1.0), "index_fill(): index -6", "size 5"),
    "take": ([20], lambda t, i: t(X).take(i), "take(): index 20", "size 20"),
    "put": ([-21], lambda t, i: t(X).put(i, t([1.0])), "put(): index -21", "size 20"),
    "x[i]": ([[0, 4]], lambda t, i: t(X)[i], "getitem(): index 4", "size 4"),
    "x[:, i]": ([5], lambda t, i: t(X)[:, i], "getitem(): index 5", "dimension 1 with size 5"),
    "x[1, i]": ([-6], lambda t, i: t(X)[1, i], "getitem(): index -6", "size 5"),
    "x[i, i]": ([4], lambda t, i: t(X)[i, i], "getitem(): index 4", "dimension 0 with size 4"),
    "x[i, mask]": ([4], lambda t, i: t(X)[i, t(X[0] > 3)], "getitem(): index 4", "size 4"),
    "x[None, i]": ([4], lambda t, i: t(X)[None, i], "getitem(): index 4", "size 4"),
    "x[i] = 1": ([4], lambda t, i: write(t(X), i, 1.0), "setitem(): index 4", "size 4"),
    "x[..., i] = x": ([5], lambda t, i: write(t(X), (..., i), t(X[:, :1])), "setitem(): index 5", "size 5"),
    "index_put": ([4], lambda t, i: t(X).index_put((i,), t(X[:1])), "setitem(): index 4", "size 4"),
    "index_put, added": (
        [4], lambda t, i: t(X).index_put((i,), t(X[:1]), True), "index_put(): index 4", "size 4",
    ),
    "an Array's": ([5], lambda t, i: mytorch.Tensor(t(X).data[:, i.data]), "getitem(): index 5", "size 5"),
    "an Array's, from the end": (
        [5], lambda t, i: mytorch.Tensor(t(X).data[..., i.data]), "getitem(): index 5", "5",
    ),
    "an Array's write": (
        [4], lambda t, i: mytorch.Tensor(write(t(X).data, i.data, 1.0)), "setitem(): index 4", "4",
    ),
    "embedding": (
        [[0, 4]], lambda t, i: F.embedding(i, t(X)), "embedding(): index out of range in self: 4", "4 rows",
    ),
    "its reference": ([4], lambda t, i: F.embedding(i, t(X), auto=True), "embedding(): index out", "4 rows"),
    "nn.Embedding": (
        [4], lambda t, i: nn.Embedding(4, 2, device=i.device)(i), "embedding(): index out", "4 rows",
    ),
    "embedding_bag": ([[0, 4]], lambda t, i: F.embedding_bag(i, t(X)), "index out of range: 4", "4 rows"),
    "one_hot": ([3, 0], lambda t, i: F.one_hot(i, 3), "one_hot(): class values", "got 3 and 3"),
    "nll_loss": ([0, 5, 1], lambda t, i: F.nll_loss(t(LOGITS), i), "nll_loss(): target 5", "5 classes"),
    "cross_entropy": (
        [0, 5, 1], lambda t, i: F.cross_entropy(t(LOGITS), i), "cross_entropy(): target 5", "5 classes",
    ),
    "its reference, ignored": (
        [-100, -1, 1], lambda t, i: F.cross_entropy(t(LOGITS), i, auto=True), "target -1", "5 classes",
    ),
    "linear_cross_entropy": (
        [0, 5, 1], lambda t, i: F.linear_cross_entropy(t(LOGITS), t(np.eye(5, dtype="float32")), i),
        "linear_cross_entropy(): target 5", "5 classes",
    ),
    "multi_margin_loss": ([0, 5, 1], lambda t, i: F.multi_margin_loss(t(LOGITS), i), "5", ""),
}


def called(case, where):
    index, call, *_ = CASES[case]
    return call(lambda x: mytorch.tensor(x, device=where), mytorch.tensor(index, device=where))


@pytest.mark.parametrize("case", CASES)
def test_the_next_wait_raises(case):
    *_, text, size = CASES[case]
    with pytest.raises((IndexError, RuntimeError)) as on_cpu:
        called(case, "cpu")
    result = called(case, DEVICE)
    with pytest.raises(on_cpu.type) as error:
        result.tolist()
    assert text in str(error.value) and size in str(error.value)
    result.tolist()  # it is raised once
    if "for axis" not in str(on_cpu.value):  # NumPy's own words
        assert str(error.value) == f"{on_cpu.value}. A GPU found it, after the call had returned"


WAITS = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "print": lambda x: str(x),
    "cpu": lambda x: x.cpu(),
    "numpy": lambda x: x.numpy(force=True),
    "bool": lambda x: bool(x.sum()),
    "if x > 0": lambda x: 1 if x.sum() > 0 else 0,
    "int": lambda x: int(x.sum()),
    "an Array": lambda x: x.data.tolist(),
    "synchronize": lambda x: mytorch.cuda.synchronize(DEVICE),
    "accelerator": lambda x: mytorch.accelerator.synchronize(),
    "a stream": lambda x: mytorch.cuda.current_stream(DEVICE).synchronize(),
    "an event": lambda x: mytorch.cuda.current_stream(DEVICE).record_event().synchronize(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_every_wait(wait):
    x = mytorch.ones(3, device=DEVICE)
    wait(x[mytorch.tensor([2, -3], device=DEVICE)])
    y = x[mytorch.tensor([3], device=DEVICE)]
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        wait(y)
    wait(y)


def test_the_first_error_is_raised():
    x = mytorch.ones(3, device=DEVICE)
    for bad in (2, 7, 8):
        x[mytorch.tensor([bad], device=DEVICE)]
    with pytest.raises(IndexError, match="index 7"):
        mytorch.cuda.synchronize()
    mytorch.cuda.synchronize()


def test_an_index_into_nothing_raises_at_once():
    x, index = mytorch.ones(0, 3, device=DEVICE), mytorch.tensor([1], device=DEVICE)
    for call in (lambda: x[index], lambda: x.index_select(0, index), lambda: F.embedding(index, x)):
        with pytest.raises(IndexError, match="any value"):
            call()
    mytorch.cuda.synchronize()


def test_ignored_targets_and_empty_indices_are_none():
    x = mytorch.tensor(LOGITS, device=DEVICE)
    loss = F.cross_entropy(x, mytorch.tensor([-100, 4, 0], device=DEVICE)).item()
    assert loss == F.cross_entropy(x, mytorch.tensor([7, 4, 0], device=DEVICE), ignore_index=7).item()
    assert x[:0][mytorch.tensor([], dtype="int64", device=DEVICE)].tolist() == []
    assert x.gather(1, mytorch.ones(0, 2, dtype="int64", device=DEVICE)).tolist() == []


def test_a_cuda_graph_checks_in_each_replay():
    table = mytorch.arange(12.0, device=DEVICE).reshape(4, 3)
    index = mytorch.tensor([0, 3], device=DEVICE)
    graph = graphs.CUDAGraph()
    F.embedding(index, table)
    with graphs.graph(graph):
        y = F.embedding(index, table)
    mytorch.cuda.synchronize(DEVICE)
    for wanted in ([1, 2], [0, 4], [3, 0]):
        index.copy_(mytorch.tensor(wanted, device=DEVICE))
        graph.replay()
        if max(wanted) < 4:
            assert y.tolist() == table.cpu().numpy()[wanted].tolist()
        else:
            with pytest.raises(IndexError, match="index out of range in self: 4, of 4 rows"):
                y.tolist()


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled_functions_check(mode):
    table = mytorch.arange(12.0, device=DEVICE).reshape(4, 3)

    @mytorch.compile(fullgraph=True, mode=mode)
    def step(i, target):
        x = F.embedding(i, table)
        return F.cross_entropy(x, target), table[i], table.gather(1, i[:, None])

    def run(i, target):
        return [y.tolist() for y in step(*[mytorch.tensor(x, device=DEVICE) for x in (i, target)])]

    for _ in range(3):
        run([0, 2], [1, 2])
        for i, target, text in (
            ([0, 4], [0, 1], "embedding(): index out of range in self: 4, of 4 rows"),
            ([0, 1], [0, 3], "cross_entropy(): target 3 is out of bounds, there are 3 classes"),
            ([0, 3], [0, 1], "gather(): index 3 is out of bounds for dimension 1 with size 3"),
        ):
            with pytest.raises((IndexError, RuntimeError)) as error:
                run(i, target)
            assert text in str(error.value)


def test_a_check_does_not_wait(monkeypatch, fake_cuda):
    table = mytorch.ones(4, 3, device=DEVICE, requires_grad=True)
    index = mytorch.tensor([1, 2], device=DEVICE)
    F.cross_entropy(F.embedding(index, table), index).backward()
    with never_waiting(monkeypatch, fake_cuda):
        F.cross_entropy(F.embedding(index, table), index).backward()
        table.gather(1, index[:, None]), table[index], table.take(index)
