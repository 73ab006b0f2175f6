"""mytorch.debug: the tape of a loss, and the statistics of workers and ranks."""

import io
import os
import re
import time

import pytest

import mytorch
from mytorch import nn, stream
from mytorch.debug import print_tape, print_worker_stats, tape_text
from mytorch.stream import page
from mytorch.utils.checkpoint import checkpoint
from mytorch.utils.data import DataLoader, Dataset, TensorDataset


def test_the_tape_is_in_the_order_of_the_backward_pass(capsys):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    with mytorch.use_fused(False):
        print_tape(model(mytorch.ones(2, 3)).sum(), model)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["sum", "tanh", "linear"]
    assert {line.split()[1] for line in lines[3:]} == {"0.weight", "0.bias"}
    assert lines[0].split() == ["#5", "sum", "float32[]", "<-", "#4"]
    assert lines[1].endswith("keeps 32 B") and "float32[2,4]" in lines[1]


def test_every_gradient_comes_before_it_is_used():
    x = mytorch.ones(2, requires_grad=True)
    y = x * 2
    a, b = y.exp().chunk(2)
    loss = (a * b + y.sum() + y.sin().sum()).sum()
    position = {}
    lines = tape_text(loss).splitlines()
    for i, line in enumerate(lines):
        position[line.split()[0]] = i
    assert len(position) == len(lines)
    for i, line in enumerate(lines):
        for parent in re.findall(r"#\d+", line.partition("<-")[2]):
            assert position[parent] > i


def test_deep_freed_and_recomputed_graphs():
    x = mytorch.ones(2, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    assert len(tape_text(y).splitlines()) == 5001
    loss = (x * x).sum()
    loss.backward()
    assert tape_text(loss).splitlines()[0].endswith("freed")
    assert "computed again" in tape_text(checkpoint(lambda x: x.exp(), x).sum())
    assert "requires no gradient" in tape_text(mytorch.ones(2))
    with pytest.raises(TypeError, match="expected a Tensor, got float"):
        print_tape(1.0)
    with pytest.raises(TypeError, match="the model is a Module, got str"):
        print_tape(loss, "x")
    with pytest.raises(TypeError, match="expected a file to write to, got str"):
        print_worker_stats("x")


def stats():
    out = io.StringIO()
    print_worker_stats(out)
    return out.getvalue()


def test_workers():
    data = TensorDataset(mytorch.arange(24).view(12, 2))
    assert "no DataLoader has workers" in stats() and f"pid {os.getpid()}" in stats()
    batches = iter(DataLoader(data, batch_size=2, num_workers=2))
    for _ in range(3):
        next(batches)
    text = stats()
    assert re.search(r"DataLoader of TensorDataset: waited \d\.\d{3} s for 3 batches", text)
    assert re.search(r"  worker 1 \(pid \d+\): \d batches, [\d.]+ [MG]B, ", text)
    assert list(batches) and "no DataLoader has workers now: without persistent_workers=True" in stats()


class Stuck(Dataset):
    """Sample 4 takes until the file `go` exists."""

    def __init__(self, go):
        self.go = go

    def __len__(self):
        return 6

    def __getitem__(self, i):
        while i == 4 and not self.go.exists():
            time.sleep(0.01)
        return i


def test_a_worker_that_is_ahead_of_the_program(tmp_path):
    """What it says is of the batch that it loads, not of the first that the program hasn't received."""
    batches = iter(DataLoader(Stuck(tmp_path / "go"), num_workers=1, prefetch_factor=6))
    next(batches)
    deadline = time.monotonic() + 60
    while ": 4 batches" not in stats() and time.monotonic() < deadline:
        time.sleep(0.01)
    while "sample 4, in batch 4" not in stats() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert re.search(r"worker 0 .*: 4 batches, .*, sample 4, in batch 4\n", stats())
    (tmp_path / "go").touch()
    while ": 6 batches" not in stats() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert re.search(r"worker 0 .*: 6 batches, .*, waits\n", stats())
    assert len(list(batches)) == 5


def test_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "folder", lambda: tmp_path)
    monkeypatch.delenv("MYTORCH_TOP", raising=False)
    stream.publish()
    try:
        mytorch.ones(2).exp()
        line = stats().splitlines()[-1]
    finally:
        stream.unpublish()
    waits = "communication 0.000 s, data 0.000 s"
    assert line.startswith(f"  rank 0 (pid {os.getpid()}): 1 operations, {waits}, ")
    assert line.endswith(", exp")
