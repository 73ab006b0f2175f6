"""
Soak: trainings whose batches come from loader workers, which must not need more and more.

After each epoch memory (of this process and the workers), descriptors, threads, processes and blocks of
shared memory are counted. Once it is warm, the median of the last third must not exceed that of the second;
when the loaders are gone, nothing of theirs is left.
"""

import gc
import os
from pathlib import Path
from statistics import median

import numpy as np
import psutil

import mytorch
from mytorch import nn, optim
from mytorch.utils.data import DataLoader, Dataset, IterableDataset

DEADLINE = 600  # seconds
TRIES = 1
KNOWN = {}
EPOCHS = [24] * 9 + [240]  # in thirds: warming up, and the two that are compared
# An epoch has 1 MB. How many blocks are in use at a time, each with a descriptor, depends on who is faster.
MARGIN = {"memory": 3 << 20, "descriptors": 4, "blocks": 4}
SAMPLES, WIDTH = 48, 4096


def draw(random):
    workers = random.choice([0, 1, 2, 3])
    options = {"batch_size": random.choice([4, 6, 16]), "num_workers": workers}
    if workers:
        options["persistent_workers"] = random.random() < 0.7
        options["prefetch_factor"] = random.choice([1, 2, 4])
    kind = random.choice(["samples", "stream"])
    if kind == "samples":
        options["shuffle"] = random.random() < 0.5
    habits = random.sample(["break", "error", "keep", "state", "two loaders"], random.randint(0, 3))
    return f"{kind}, {workers} workers", options, sorted(habits), random.choice(EPOCHS)


class Samples(Dataset):
    """48 samples; sample 13 is broken, if wanted."""

    def __init__(self, breaks):
        self.breaks = breaks

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        if self.breaks and i == 13:
            raise ValueError("sample 13 is broken")
        return {"x": np.full(WIDTH, i, np.float32), "name": f"sample {i}"}


class Stream(IterableDataset):
    def __init__(self, breaks):
        self.samples = Samples(breaks)

    def __iter__(self):
        return map(self.samples.__getitem__, range(SAMPLES))


def check(folder, kind, options, habits, epochs):
    mytorch.use_fused(False)  # no kernel is compiled
    count()
    before = count()
    counts = train(kind, options, habits, epochs)
    third = epochs // 3
    for what in before:
        values = [one[what] for one in counts]
        settled, at_end = median(values[third : 2 * third]), median(values[2 * third :])
        assert at_end <= settled + MARGIN.get(what, 0), f"more and more {what}: {values}"
    gc.collect()
    after = count()
    for what in ("descriptors", "processes", "blocks", "shared files"):
        assert after[what] <= before[what], f"{what}: {before[what]} before, {after[what]} after"


def train(kind, options, habits, epochs):
    """The counts after each epoch."""
    make = Samples if kind.startswith("samples") else Stream
    loaders = [
        DataLoader(make("error" in habits), **options) for _ in range(2 if "two loaders" in habits else 1)
    ]
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    kept, counts = [], []
    for epoch in range(epochs):
        batch = None  # all may be broken
        for batch in batches(loaders[epoch % len(loaders)], "break" in habits and epoch % 3 == 2):
            loss = model(batch["x"] / SAMPLES).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept = [*kept[-5:], batch] if "keep" in habits else []
        if "state" in habits:
            loaders[0].load_state_dict(loaders[0].state_dict())
        del batch
        gc.collect()
        counts.append(count())
    return counts


def batches(loader, breaks_off):
    """The batches that can be loaded; of some passes only the first."""
    iterator, number = iter(loader), 0
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except ValueError as error:
            assert "sample 13 is broken" in str(error)
        number += 1
        if breaks_off and number == 2:
            return


def count():
    own = psutil.Process()
    children = own.children(recursive=True)
    memory = sum(process.memory_full_info().uss for process in [own, *children])
    return {
        "memory": memory,
        "descriptors": own.num_fds(),
        "threads": own.num_threads(),
        "processes": len(children),
        "blocks": Path("/proc/self/maps").read_text().count("mytorch-batch"),
        "shared files": len([name for name in os.listdir("/dev/shm") if str(own.pid) in name]),
    }
