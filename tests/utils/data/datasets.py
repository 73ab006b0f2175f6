"""Datasets and helpers of the tests, in a module of their own: spawned workers import it."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import random
import signal
import sys
import time

import numpy as np

import mytorch
from mytorch.utils import data

Pair = collections.namedtuple("Pair", "a b")


@contextlib.contextmanager
def within(seconds):
    """Fail, where it is, what takes longer than that: nothing may hang."""

    def late(number, frame):
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def eventually(condition, seconds=10):
    """Wait until a condition holds, which others bring about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def plain(batch):
    """A batch as lists, with dtypes, whichever library it is of."""
    if hasattr(batch, "tolist") and hasattr(batch, "dtype"):
        return str(batch.dtype).removeprefix("torch."), batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else batch


class Augmented(data.Dataset):
    """Samples with random numbers from everywhere."""

    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        noise = (random.random(), np.random.rand(), np.random.randn(), mytorch.rand(2), mytorch.randn(1))
        return {"i": i, "noise": noise, "x": np.full((2, 3), i, np.float32)}


class Numbers(data.Dataset):
    """0, 1, 2, …, each through `act(i)`, which may do harm."""

    def __init__(self, size=10, act=lambda i: i):
        self.size, self.act = size, act

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.act(i)


class Stream(data.IterableDataset):
    """Each worker has a stream of another length, with random numbers in it."""

    def __init__(self, lengths=(5, 3, 8)):
        self.lengths = lengths

    def __iter__(self):
        info = data.get_worker_info()
        worker = 0 if info is None else info.id
        for i in range(self.lengths[worker]):
            yield worker, i, int(np.random.randint(1000))


class Resumable(Stream):
    """As `Stream`, and it goes on from its own state; it starts anew when it has ended."""

    position, loads = 0, 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]

    def __iter__(self):
        info = data.get_worker_info()
        worker = 0 if info is None else info.id
        while self.position < self.lengths[worker]:
            self.position += 1
            yield worker, self.position - 1, int(np.random.randint(1000))
        self.position = 0


class Endless(data.IterableDataset):
    def __iter__(self):
        while True:
            yield np.zeros(4, np.float32)


class OwnError(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


def raise_at_5(error):
    def act(i):
        if i == 5:
            raise error
        return i

    return act


def segfault():
    ctypes.string_at(0)


def kill_itself(number):
    os.kill(os.getpid(), number)


def killed_at_5(i):
    if i == 5:
        kill_itself(signal.SIGKILL)
    return i


def leave():
    sys.exit(3)


def triple(samples):
    return [3 * x for x in samples]


def seeded_generator(seed):
    return mytorch.Generator().manual_seed(seed)
