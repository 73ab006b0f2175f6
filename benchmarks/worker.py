"""The process of one library: python -m benchmarks.worker mytorch|torch|jax MODULE ARGUMENTS"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.machine import forget_peak_memory, peak_memory
from benchmarks.processes import serve


def tasks(name: str, module: str, *args: str) -> dict[str, Callable]:
    """Returns what the process can be asked to do with a library and the jobs of a benchmark."""
    library = importlib.import_module(name)  # before NumPy, as in a user's script: it may choose its kernels
    if name == "torch":
        library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    jobs = importlib.import_module(f"benchmarks.{module}").jobs(library, *args)
    labels = {"torch": "PyTorch {}", "mytorch": f"mytorch {{}}, NumPy {version('numpy')}", "jax": "JAX {}"}

    def about() -> dict:
        threads = len(os.sched_getaffinity(0)) if name == "jax" else library.get_num_threads()
        return {"version": labels[name].format(library.__version__), "threads": threads}

    def run(job: int, steps: int, warm_up: int) -> dict[str, Any]:
        """Makes a job; returns the times of its steps, the numbers of all that ran, and the memory's peak."""
        gc.collect()  # the model of the turn before goes first: two at once would be a false peak
        task, ms = jobs[job](), []
        forget_peak_memory()
        values = [task.check()] if task.check else []
        values += [task.step() for _ in range(warm_up)]
        for _ in range(steps):
            begin = time.perf_counter()
            values.append(task.step())
            ms.append((time.perf_counter() - begin) * 1e3 / task.calls)
        return {"ms": ms, "values": values, "peak_memory": peak_memory()}

    return {"about": about, "run": run}


if __name__ == "__main__":
    serve(tasks(*sys.argv[1:]))
