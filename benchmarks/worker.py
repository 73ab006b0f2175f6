"""The process of one library: python -m benchmarks.worker mytorch|torch MODULE ARGUMENTS"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Task
from benchmarks.machine import forget_peak_memory, peak_memory
from benchmarks.processes import serve


class Jobs:
    """Runs jobs, which are made when they are first needed."""

    def __init__(self, makers: list[Callable[[], Task]]):
        self.makers, self.made = makers, {}

    def run(self, job: int, steps: int, warm_up: int, fresh: bool) -> dict:
        """Returns the times of the steps, the numbers of all that ran, and the peak of memory."""
        if fresh and self.made.pop(job, None):
            gc.collect()  # the old model goes before the new one comes: two at once would be a false peak
        if job not in self.made:
            self.made[job] = self.makers[job]()
            forget_peak_memory()
        task, ms = self.made[job], []
        values = [task.check()] if task.check else []
        values += [task.step() for _ in range(warm_up)]
        for _ in range(steps):
            begin = time.perf_counter()
            values.append(task.step())
            ms.append((time.perf_counter() - begin) * 1e3)
        return {"ms": ms, "values": values, "peak_memory": peak_memory()}


def about(library: Any) -> dict:
    """Returns the library's version, its threads, and the vectors or kernels that it uses."""
    if library.__name__ == "torch":
        kernels = f"; ATen for {library.backends.cpu.get_cpu_capability()}"
        version = f"PyTorch {library.__version__}"
    else:
        import numpy

        from mytorch.backends.openblas import openblas

        blas = openblas()
        kernels = f"; OpenBLAS for {blas.get_corename().decode()}" if blas else ""
        version = f"mytorch {library.__version__}, NumPy {numpy.__version__}"
    return {"version": version, "threads": library.get_num_threads(), "kernels": kernels}


def main(name: str, module: str, *args: str) -> None:
    library = importlib.import_module(name)  # before NumPy, as in a user's script: it may choose its kernels
    if name == "torch":
        library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    jobs = Jobs(importlib.import_module(f"benchmarks.{module}").jobs(library, *args))
    serve({"about": lambda: about(library), "run": jobs.run})


if __name__ == "__main__":
    main(*sys.argv[1:])
