"""Loading with PyTorch's DataLoader."""

from __future__ import annotations

import os
import sys

import torch
from torch.utils.data import DataLoader

from benchmarks.loader import loads_of
from benchmarks.loader_problem import Load, Samples, passes
from benchmarks.protocol import serve


def make_loader(load: Load) -> DataLoader:
    dataset = Samples(load, torch.from_numpy)
    stays = load.num_workers > 0
    return DataLoader(dataset, load.batch_size, num_workers=load.num_workers, persistent_workers=stays)


def main(loads: str) -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    serve({"version": f"PyTorch {torch.__version__}"}, lambda: list(passes(loads_of(loads), make_loader)))


if __name__ == "__main__":
    main(*sys.argv[1:])
