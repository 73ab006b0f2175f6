"""Loading with a DataLoader: python -m benchmarks.workers.loader LOADS mytorch|torch"""

from __future__ import annotations

import importlib
import os
import sys


def main(loads: str, name: str) -> None:
    library = importlib.import_module(name)  # before NumPy, as in a user's script
    from benchmarks.harness import about_mytorch, serve
    from benchmarks.loader import LOADS, Load, Samples, passes

    data = importlib.import_module(f"{name}.utils.data")

    def make_loader(load: Load) -> data.DataLoader:
        dataset, stays = Samples(load, library.from_numpy), load.num_workers > 0
        return data.DataLoader(
            dataset, load.batch_size, num_workers=load.num_workers, persistent_workers=stays
        )

    if name == "torch":
        library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        about = {"version": f"PyTorch {library.__version__}"}
    else:
        about = {"version": about_mytorch()["version"]}
    serve(about, lambda: list(passes(LOADS[loads], make_loader)))


if __name__ == "__main__":
    main(*sys.argv[1:])
