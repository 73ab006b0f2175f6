"""The process of one library: python -m benchmarks.worker mytorch|torch|jax MODULE ARGUMENTS"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from benchmarks.harness import Task
from benchmarks.machine import forget_peak_memory, peak_memory
from benchmarks.processes import serve


def run(makers: list[Callable[[], Task]], job: int, steps: int, warm_up: int) -> dict:
    """Makes a job; returns the times of its steps, the numbers of all that ran, and the peak of memory."""
    gc.collect()  # the model of the turn before goes first: two at once would be a false peak
    task, ms = makers[job](), []
    forget_peak_memory()
    values = [task.check()] if task.check else []
    values += [task.step() for _ in range(warm_up)]
    for _ in range(steps):
        begin = time.perf_counter()
        values.append(task.step())
        ms.append((time.perf_counter() - begin) * 1e3)
    return {"ms": ms, "values": values, "peak_memory": peak_memory()}


def about(library: Any) -> dict:
    """Returns the versions and the threads of a library."""
    labels = {"torch": "PyTorch {}", "mytorch": f"mytorch {{}}, NumPy {version('numpy')}", "jax": "JAX {}"}
    count = getattr(library, "get_num_threads", available_cores)()  # JAX takes all cores
    return {"version": labels[library.__name__].format(library.__version__), "threads": count}


def available_cores() -> int:
    return len(os.sched_getaffinity(0))


def main(name: str, module: str, *args: str) -> None:
    library = importlib.import_module(name)  # before NumPy, as in a user's script: it may choose its kernels
    if name == "torch":
        library.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    makers = importlib.import_module(f"benchmarks.{module}").jobs(library, *args)
    serve({"about": lambda: about(library), "run": partial(run, makers)})


if __name__ == "__main__":
    main(*sys.argv[1:])
