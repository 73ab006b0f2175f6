"""Loading with mytorch's DataLoader."""

from __future__ import annotations

import sys
from importlib.metadata import version

import mytorch
from benchmarks.loader import loads_of
from benchmarks.loader_problem import Load, Samples, passes
from benchmarks.protocol import serve
from mytorch.utils.data import DataLoader


def make_loader(load: Load) -> DataLoader:
    dataset = Samples(load, mytorch.from_numpy)
    stays = load.num_workers > 0
    return DataLoader(dataset, load.batch_size, num_workers=load.num_workers, persistent_workers=stays)


def main(loads: str) -> None:
    about = {"version": f"mytorch {mytorch.__version__}, NumPy {version('numpy')}"}
    serve(about, lambda: list(passes(loads_of(loads), make_loader)))


if __name__ == "__main__":
    main(*sys.argv[1:])
