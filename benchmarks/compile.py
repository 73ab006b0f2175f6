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
from typing import Any, NamedTuple

import numpy as np

from benchmarks import harness, kernel_jobs
from benchmarks.gpt import BETAS, CONFIGS, chain
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
LENGTH = 10**7
ROWS = (4096, 768)
KERNELS = [
    kernel_jobs.Job("softmax", (ROWS,), options=(-1,)),
    kernel_jobs.Job("layer_norm", (ROWS, ROWS[1:], ROWS[1:]),
                    call=lambda F, _, x, *p: F.layer_norm(x, ROWS[1:], *p)),
    kernel_jobs.Job("gelu", (ROWS,)),
    kernel_jobs.Job("cross_entropy", ((512, 50304),), constants=(kernel_jobs.tokens(512, 50304),)),
]  # fmt: skip
Call = Callable[[], Any]  # returns a tensor, whose first number is compared


class Job(NamedTuple):
    """What is timed: `make(library, mode)` returns it, for eager with the mode "". A step of the
    harness are several calls."""

    size: str
    calls: int
    make: Callable[[Any, str], Call]


def normal(library: Any, *shape: int, seed: int = 5) -> Any:
    return library.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def filled(library: Any, model: Any) -> Any:
    """Returns the model with the weights that the other library's gets."""
    with library.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(normal(library, *p.shape, seed=k) * 0.1)
    return model


def training(library: Any, mode: str, loss_of: Callable, optimizer: Any, *batch: Any) -> Call:
    """Returns training steps on one batch, which return the loss."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    if mode and library.__name__ == "torch":
        loss_of = library.compile(loss_of, mode=mode)
    elif mode:
        step = library.compile(step, mode=mode)
    return lambda: step(*batch)


def perceptron(library: Any, sizes: tuple[int, int, int]) -> Any:
    nn = library.nn
    return filled(library, nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])))


def mlp(library: Any, mode: str) -> Call:
    model, mse_loss = perceptron(library, (64, 64, 64)), library.nn.functional.mse_loss
    adam = library.optim.Adam(model.parameters(), lr=1e-4)
    x, y = (normal(library, 32, 64, seed=seed) for seed in (8, 9))
    return training(library, mode, lambda x, y: mse_loss(model(x), y), adam, x, y)


def policy(library: Any, mode: str) -> Call:
    return function(library, mode, perceptron(library, (4, 128, 2)), normal(library, 1, 4))


def lstm(library: Any, mode: str) -> Call:
    model, mse_loss = filled(library, library.nn.LSTM(128, 128, 2)), library.nn.functional.mse_loss
    adam = library.optim.Adam(model.parameters(), lr=1e-4)
    x, y = (normal(library, 32, 16, 128, seed=seed) for seed in (8, 9))
    return training(library, mode, lambda x, y: mse_loss(model(x)[0], y), adam, x, y)


def gpt(library: Any, mode: str, config: str) -> Call:
    model = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(CONFIGS[config]).model
    adamw = library.optim.AdamW(model.parameters(), lr=6e-4, betas=BETAS, weight_decay=0.1)

    def loss_of(x: Any, y: Any) -> Any:
        if library.__name__ == "torch":
            return model(x, y)
        logits = model(x)
        return library.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    batch = [library.from_numpy(a[0]) for a in chain(CONFIGS[config], 1)]
    return training(library, mode, loss_of, adamw, *batch)


def function(library: Any, mode: str, call: Callable, *tensors: Any) -> Call:
    """Returns calls without gradients."""
    compiled = library.compile(call, mode=mode) if mode else call

    def run() -> Any:
        with library.no_grad():
            return compiled(*tensors)

    return run


def reference(library: Any, mode: str, call: Callable, *tensors: Any) -> Call:
    """Returns calls without gradients; if mytorch compiles it, of the reference, without kernels."""
    if not mode or library.__name__ == "torch":
        return function(library, mode, call, *tensors)
    with library.nn.functional.use_fused(False):
        program = library.capture(call, *tensors).optimized(mode)
    return lambda: program(*tensors)


def copyto(library: Any, mode: str) -> Call:
    """NumPy's for all, to compare with."""
    x = np.ones(LENGTH, np.float32)
    y = x.copy()
    return lambda: np.copyto(y, x) or y


def sums_and_products(library: Any, mode: str) -> Call:
    def ten(x: Any) -> Any:
        y = library.abs((library.maximum(x * 2 + 1, x) - 0.5) * x) + x
        return library.minimum(y, x) * 0.5 - 1

    return function(library, mode, ten, normal(library, LENGTH))


def transcendental(library: Any, mode: str) -> Call:
    def ten(x: Any) -> Any:
        y = library.exp(library.tanh(x * 2) + 1)
        return library.sqrt(library.abs(y * x)) * 0.1 - 0.5 + x

    return function(library, mode, ten, normal(library, LENGTH))


def kernel(library: Any, mode: str, job: kernel_jobs.Job) -> Call:
    """The reference of a kernel, if mytorch compiles it."""
    F, constants = library.nn.functional, [library.from_numpy(a) for a in job.constants]
    tensors = [normal(library, *size) for size in job.sizes]
    return reference(library, mode, lambda *xs: job.run(F, constants, *xs), *tensors)


def adamw(library: Any, mode: str) -> Call:
    """Steps of the optimizer; mytorch compiles its formula, in place."""
    p, g, steps = normal(library, LENGTH), normal(library, LENGTH, seed=6), iter(range(1, 10**6))
    if not mode or library.__name__ == "torch":
        p = library.nn.Parameter(p)
        p.grad, optimizer = g, library.optim.AdamW([p], lr=1e-3, **({"fused": True} if mode else {}))
        return lambda: optimizer.step() or p

    def update(p: Any, m: Any, v: Any, size: Any, eps: Any) -> None:
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.mul_(1 - 1e-5).sub_(size * m / (v.sqrt() + eps))

    state, one = [p, library.zeros(LENGTH), library.zeros(LENGTH)], library.tensor(1.0)
    program = library.capture(update, *state, one, one).optimized(mode)

    def run() -> Any:
        number = next(steps)
        root = (1 - 0.999**number) ** 0.5
        size = 1e-3 * root / (1 - 0.9**number)
        program(*state, library.tensor(size), library.tensor(1e-8 * root))
        return p

    return run


JOBS = {
    "MLP": Job("64-64-64, batch 32", 50, mlp),
    "policy": Job("4-128-2, batch 1, forward", 500, policy),
    "LSTM": Job("2 × 128, 32 steps, batch 16", 3, lstm),
    **{name: Job(f"GPT {name}", 1, partial(gpt, config=name)) for name in ("nano", "small", "gpt2")},
    "copyto": Job(f"np.copyto of {LENGTH:,}", 5, copyto),
    "sums": Job(f"10 sums, products, … of {LENGTH:,}", 5, sums_and_products),
    "exp": Job(f"10, with exp, tanh, sqrt, of {LENGTH:,}", 5, transcendental),
    **{job.name: Job(f"{job.sizes[0][0]:,} × {job.sizes[0][1]:,}", 10, partial(kernel, job=job))
       for job in KERNELS},
    "AdamW": Job(f"{LENGTH:,}", 3, adamw),
}  # fmt: skip


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
        metavar="NAME", help=f"what to run, the reference first: {', '.join(VARIANTS)}")  # fmt: skip
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
