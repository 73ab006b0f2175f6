"""How workers start: by every method, in every place, and what can be changed between two passes."""

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch.utils.data

import mytorch
from mytorch.utils import data
from tests.every import every
from tests.utils.data.datasets import Numbers, Pair, eventually, is_alive, killed_at_5, plain, within

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def bounded():
    with within(120):
        yield


# Start methods

DATASETS = {
    "a list": [1, 2.5, 3],
    "arrays": np.arange(12.0).reshape(4, 3),
    "tensors": data.TensorDataset(mytorch.arange(12.0).reshape(4, 3), mytorch.arange(4)),
    "a stack": data.StackDataset(x=mytorch.ones(3, 2, dtype=mytorch.float16), y=["a", "b", "c"]),
    "samples with names": [Pair(mytorch.ones(2), {"k": np.int16(3)})] * 3,
    "nothing": [],
}


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_data_come_to_every_worker(method):
    context = multiprocessing.get_context(method)
    for dataset in DATASETS.values():
        loader = data.DataLoader(dataset, 2, num_workers=1, multiprocessing_context=context)
        assert [plain(b) for b in loader] == [plain(b) for b in data.DataLoader(dataset, 2)]


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_the_context_is_that_of_pytorch(method):
    options = {"num_workers": 1, "multiprocessing_context": method}
    ours = data.DataLoader(range(4), **options).multiprocessing_context
    theirs = torch.utils.data.DataLoader(range(4), **options).multiprocessing_context
    assert type(ours) is type(theirs) and isinstance(ours, multiprocessing.context.BaseContext)
    assert data.DataLoader(range(4), num_workers=1).multiprocessing_context is None


@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrong_context_is_refused_later_too(workers):
    for module in (torch.utils.data, data):
        loader = module.DataLoader(range(4), num_workers=workers)
        with pytest.raises(ValueError, match="multiprocessing_context"):
            loader.multiprocessing_context = "thread" if workers else "fork"


def test_there_are_no_workers_on_windows(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert [b.tolist() for b in data.DataLoader(range(3), 2)] == [[0, 1], [2]]
    with pytest.raises(RuntimeError, match="num_workers=2: .* Windows doesn't support; use num_workers=0"):
        data.DataLoader(range(3), num_workers=2)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_dead_worker_is_named(method):
    loader = data.DataLoader(Numbers(10, killed_at_5), 2, num_workers=1, multiprocessing_context=method)
    with pytest.raises(RuntimeError, match=r"worker 0 .*\(SIGKILL\).* while loading sample 5, in batch 2"):
        list(loader)


SCRIPT = """
import sys
from mytorch.utils import data

if __name__ == "__main__":
    loader = data.DataLoader(range(100), num_workers=2, multiprocessing_context=sys.argv[1])
    batches = iter(loader)
    next(batches)
    print(*(worker.process.pid for worker in batches._pool.workers), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_end_when_the_parent_is_killed(method, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, program, method], env={**os.environ, "PYTHONPATH": paths}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2 and every(map(is_alive, workers))
    process.kill()
    process.communicate()
    eventually(lambda: not any(map(is_alive, workers)), 60)


# Loaders in workers


def within_a_worker(workers):
    def act(i):
        inner = data.DataLoader(range(4), 2, num_workers=workers)
        return [batch.tolist() for batch in inner], data.get_worker_info().id

    return data.DataLoader(Numbers(2, act), None, num_workers=1)


def test_a_loader_in_a_worker():
    assert [plain(b) for b in within_a_worker(0)] == [[[[0, 1], [2, 3]], 0]] * 2
    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        list(within_a_worker(1))


# Between two passes

CHANGES = {
    "more workers": ({"num_workers": 1}, {"num_workers": 3}),
    "fewer workers": ({"num_workers": 3, "persistent_workers": True}, {"num_workers": 1}),
    "no workers": ({"num_workers": 2, "persistent_workers": True}, {"num_workers": 0}),
    "workers after none": ({"num_workers": 0}, {"num_workers": 2}),
    "another collate_fn": ({"num_workers": 1}, {"collate_fn": sum}),
    "another timeout": ({"num_workers": 1}, {"timeout": 60}),
    "another method": ({"num_workers": 1}, {"multiprocessing_context": "fork"}),
    "prefetch_factor": ({"num_workers": 1}, {"prefetch_factor": 5}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_passes(name):
    options, changes = CHANGES[name]
    loader = data.DataLoader(range(6), 2, **options)
    first = [plain(b) for b in loader]
    for attribute, value in changes.items():
        setattr(loader, attribute, value)
    second = [plain(b) for b in loader]
    assert second == ([1, 5, 9] if "collate_fn" in changes else first)
    if loader.num_workers and loader.persistent_workers:
        assert len(loader._pool.workers) == loader.num_workers


# What a loader is


def test_attributes_against_pytorch():
    for options in ({}, {"batch_sampler": [[1]]}, {"batch_size": None}, {"shuffle": True, "batch_size": 3}):
        ours, theirs = data.DataLoader(range(4), **options), torch.utils.data.DataLoader(range(4), **options)
        for name in ("sampler", "batch_sampler"):
            assert type(getattr(ours, name)).__name__ == type(getattr(theirs, name)).__name__
        for name in ("batch_size", "drop_last", "num_workers", "prefetch_factor", "timeout", "pin_memory"):
            assert getattr(ours, name) == getattr(theirs, name)


def test_a_loader_has_a_type_of_samples():
    def total(loader: data.DataLoader[int]) -> int:
        return sum(batch.sum().item() for batch in loader)

    assert total(data.DataLoader(range(4), 2)) == 6


def test_a_loader_can_be_pickled():
    loader = data.DataLoader(list(range(5)), 2, shuffle=True, generator=mytorch.Generator().manual_seed(1))
    copy = pickle.loads(pickle.dumps(loader))
    assert [b.tolist() for b in copy] == [b.tolist() for b in loader]


def test_a_sampler_of_tensors():
    order = mytorch.tensor([3, 1, 2])
    assert [b.tolist() for b in data.DataLoader(range(10), 2, sampler=order)] == [[3, 1], [2]]
