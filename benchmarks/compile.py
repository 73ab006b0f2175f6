"""Time compiled programs beside eager ones and PyTorch: training steps, functions, references of kernels.

    python -m benchmarks.compile [--jobs NAME...] [--variants NAME...] [--first-call] [--rounds N]

A training step is zero_grad, forward, loss, backward and the optimizer's step, in float32, on the same
weights and batches; mytorch compiles all of it, PyTorch the loss. From softmax on mytorch compiles the
reference of what eagerly is a kernel written by hand. JAX (`pip install jax`) has all jobs except copyto.
A time is the median of a turn's steps, then of the quiet turns, for one call. Exit code 1: results differ,
or a worker failed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks import harness
from benchmarks.compile_jobs import JOBS, gpt
from benchmarks.harness import MYTORCH, TORCH, Plan, Task, Variant
from benchmarks.machine import environment

VARIANTS = {
    "torch": TORCH,
    "torch-compiled": Variant("torch.compile", "torch", options=("default",)),
    "mytorch": MYTORCH,
    "mytorch-compiled": Variant("mytorch.compile", "mytorch", options=("default",)),
    "mytorch-tuned": Variant("max-autotune", "mytorch", options=("max-autotune",)),
    "jax": Variant("JAX jit", "jax"),
}


def jobs(library: Any, names: str, mode: str = "") -> list[Callable[[], Task]]:
    """Returns what a worker runs."""
    return [partial(task, library, name, mode) for name in names.split(",")]


def task(library: Any, name: str, mode: str) -> Task:
    if library.__name__ == "jax":
        call = import_module("benchmarks.compile_jax").make(name)
    else:
        call = JOBS[name].make(library, mode)

    def step() -> float:
        for _ in range(JOBS[name].calls):
            result = call()
        return result.reshape(-1)[0].item()

    return Task(step, calls=JOBS[name].calls)


def first_calls() -> None:
    """Prints the seconds of the first compiled step of GPT nano, with an empty and with a full cache."""
    command = [sys.executable, "-c", "from benchmarks import compile; compile.first_call()"]
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            print(f"first step of GPT nano, {cache} cache:", end=" ", flush=True)
            subprocess.run(command, env=environment() | {"MYTORCH_CACHE": folder}, check=True)


def first_call() -> None:
    import mytorch

    gpt(mytorch, "", "nano")()  # loads the kernels
    step = gpt(mytorch, "default", "nano")
    start = time.perf_counter()
    step()
    print(f"{time.perf_counter() - start:.2f} s")


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("compile", __doc__, 5)
    add = options.add_argument
    add("--jobs", nargs="+", default=[*JOBS], choices=JOBS, metavar="NAME", help=", ".join(JOBS))
    add("--variants", nargs="+", default=["torch", "mytorch", "mytorch-compiled"], choices=VARIANTS,
        metavar="NAME", help=f"what to run, the reference first: {', '.join(VARIANTS)}")
    add("--first-call", action="store_true", help="time capture and compilation of GPT nano instead")
    args = options.parse_args(argv)
    if args.first_call:
        first_calls()
        return
    plan = Plan("compile", steps=5, warm_up=3, tolerance=1e-4)
    rows = [(name, JOBS[name].size) for name in args.jobs]
    variants = [VARIANTS[name] for name in args.variants]
    result = harness.measure(plan, variants, [",".join(args.jobs)], rows, args)
    harness.show("Compiled programs, float32, ms", result, harness.by_job(result), args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
