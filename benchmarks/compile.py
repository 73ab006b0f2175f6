"""Time compiled programs beside eager ones and PyTorch: training steps, functions, references of kernels.

    python -m benchmarks.compile [--jobs NAME...] [--variants NAME...] [--rounds N] [--out FILE]

A training step is zero_grad, forward, loss, backward and the optimizer's step, in float32, on the same
weights and batches; mytorch compiles all of it, PyTorch forward and loss. From softmax on mytorch compiles the
reference of what eagerly is a kernel written by hand. A time is the median of a turn's steps, then of the quiet
turns, for one call. `--first-call` times capture and compilation of the nano GPT's step instead, with an empty
cache and with a full one. Exit code 1: losses differ, or a worker failed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.gpt import BETAS, CONFIGS, chain
from benchmarks.harness import MYTORCH, TORCH, Plan, Task, Variant
from benchmarks.machine import environment

VARIANTS = {
    "torch": TORCH,
    "torch-compiled": Variant("torch.compile", "torch", options=("compiled",)),
    "mytorch": MYTORCH,
    "mytorch-compiled": Variant("mytorch.compile", "mytorch", options=("compiled",)),
}
ROWS, COLUMNS, TOKENS, VOCABULARY = 4096, 768, 512, 50304
LENGTH = 10**7  # of the vectors of `chain`, `copyto` and AdamW


@dataclass(frozen=True)
class Job:
    """What is timed.

    Attributes:
        make: `(library, is_compiled) -> a function that returns a number to compare`.
        calls: in a step of the harness.
    """

    size: str
    make: Callable[[Any, bool], Callable[[], float]]
    calls: int = 1


def filled(library: Any, model: Any, seed: int = 3) -> Any:
    """Returns the model with the weights that the other library's gets."""
    random = np.random.default_rng(seed)
    with library.no_grad():
        for p in model.parameters():
            p.copy_(library.from_numpy(0.1 * random.standard_normal(tuple(p.shape), np.float32)))
    return model


def normal(library: Any, *shape: int, seed: int = 5) -> Any:
    return library.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def training(
    library: Any, is_compiled: bool, model: Any, loss_of: Callable, optimizer: Any, *batch: Any
) -> Callable[[], float]:
    """Returns training steps on one batch, which return the loss."""
    if is_compiled and library.__name__ == "torch":
        loss_of = library.compile(loss_of)

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    if is_compiled and library.__name__ == "mytorch":
        step = library.compile(step)
    return lambda: step(*batch).item()


def mlp(library: Any, is_compiled: bool) -> Callable[[], float]:
    nn = library.nn
    model = filled(library, nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
    adam = library.optim.Adam(model.parameters(), lr=1e-4)
    x, y = normal(library, 32, 64), normal(library, 32, 64, seed=6)
    return training(
        library, is_compiled, model, lambda x, y: nn.functional.mse_loss(model(x), y), adam, x, y
    )


def policy(library: Any, is_compiled: bool) -> Callable[[], float]:
    nn = library.nn
    model = filled(library, nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)))
    x = normal(library, 1, 4)
    call = library.compile(model) if is_compiled else model

    def act() -> float:
        with library.no_grad():
            return call(x)[0, 0].item()

    return act


def lstm(library: Any, is_compiled: bool) -> Callable[[], float]:
    model = filled(library, library.nn.LSTM(128, 128, 2))
    adam = library.optim.Adam(model.parameters(), lr=1e-4)
    x, y = normal(library, 32, 16, 128), normal(library, 32, 16, 128, seed=6)
    mse_loss = library.nn.functional.mse_loss
    return training(library, is_compiled, model, lambda x, y: mse_loss(model(x)[0], y), adam, x, y)


def gpt(library: Any, is_compiled: bool, config: str) -> Callable[[], float]:
    trainer = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(CONFIGS[config])
    model, cross_entropy = trainer.model, library.nn.functional.cross_entropy
    adamw = library.optim.AdamW(model.parameters(), lr=6e-4, betas=BETAS, weight_decay=0.1)

    def loss_of(x: Any, y: Any) -> Any:
        if library.__name__ == "torch":
            return model(x, y)
        logits = model(x)
        return cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    x, y = (library.from_numpy(a[0]) for a in chain(CONFIGS[config], 1))
    return training(library, is_compiled, model, loss_of, adamw, x, y)


def ten(library: Any, is_compiled: bool, dear: bool) -> Callable[[], float]:
    """Ten elementwise functions in a row: of sums and products alone, or with exp, tanh and sqrt."""

    def cheap(x: Any) -> Any:
        y = library.maximum(x * 2 + 1, x)
        y = library.abs((y - 0.5) * x) + x
        return library.minimum(y, x) * 0.5 - 1

    def transcendental(x: Any) -> Any:
        y = library.exp(library.tanh(x * 2) + 1)
        return library.sqrt(library.abs(y * x)) * 0.1 - 0.5 + x * x

    return function(library, is_compiled, transcendental if dear else cheap, normal(library, LENGTH))


def copyto(library: Any, is_compiled: bool) -> Callable[[], float]:
    x = np.random.default_rng(5).standard_normal(LENGTH, np.float32)
    y = np.empty_like(x)
    return lambda: np.copyto(y, x) or float(y[0])


def function(library: Any, is_compiled: bool, forward: Callable, *tensors: Any) -> Callable[[], float]:
    """Returns calls of a function without gradients; of its reference, if mytorch compiles it."""
    if is_compiled and library.__name__ == "mytorch":
        with library.nn.functional.use_fused(False):  # composites are taken apart
            call = library.capture(forward, *tensors).optimized()
    else:
        call = library.compile(forward) if is_compiled else forward

    def run() -> float:
        with library.no_grad():
            return call(*tensors).reshape(-1)[0].item()

    return run


def reference(library: Any, is_compiled: bool, name: str) -> Callable[[], float]:
    F, x = library.nn.functional, normal(library, ROWS, COLUMNS)
    if name == "layer_norm":
        w, b = normal(library, COLUMNS, seed=6), normal(library, COLUMNS, seed=7)
        return function(library, is_compiled, lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), x, w, b)
    if name == "cross_entropy":
        x = normal(library, TOKENS, VOCABULARY)
        target = library.from_numpy(np.random.default_rng(8).integers(0, VOCABULARY, TOKENS))
        return function(library, is_compiled, F.cross_entropy, x, target)
    return function(library, is_compiled, {"softmax": lambda x: F.softmax(x, -1), "gelu": F.gelu}[name], x)


def adamw(library: Any, is_compiled: bool) -> Callable[[], float]:
    """Steps of the optimizer; compiled, of its formula."""
    p, g = normal(library, LENGTH), normal(library, LENGTH, seed=6)
    if not is_compiled or library.__name__ == "torch":
        p = library.nn.Parameter(p)
        optimizer = library.optim.AdamW([p], lr=1e-3, **({"fused": True} if is_compiled else {}))
        p.grad = g
        return lambda: optimizer.step() or p[0].item()
    m, v = library.zeros(LENGTH), library.zeros(LENGTH)

    def update(p: Any, m: Any, v: Any, size: Any, eps: Any) -> tuple:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
        return (1 - 1e-5) * p - size * m / (v.sqrt() + eps), m, v

    number = library.tensor(1.0)
    state, count = [p, m, v], [0]
    program = library.capture(update, *state, number, number).optimized()

    def run() -> float:
        count[0] += 1
        root = (1 - 0.999 ** count[0]) ** 0.5
        size = library.tensor(1e-3 * root / (1 - 0.9 ** count[0]))
        state[:] = program(*state, size, library.tensor(1e-8 * root))
        return state[0][0].item()

    return run


JOBS = {
    "mlp": Job("64-64-64, batch 32", mlp, 50),
    "policy": Job("4-128-2, batch 1, forward", policy, 500),
    "lstm": Job("2 × 128, 32 steps, batch 16", lstm, 3),
    **{name: Job(f"GPT {name}", partial(gpt, config=name)) for name in ("nano", "small", "gpt2")},
    "copyto": Job(f"np.copyto, {LENGTH:.0e}", copyto, 5),
    "chain": Job(f"sums and products, {LENGTH:.0e}", partial(ten, dear=False), 5),
    "chain-exp": Job(f"exp, tanh, sqrt, {LENGTH:.0e}", partial(ten, dear=True), 5),
    "softmax": Job(f"{ROWS} × {COLUMNS}", partial(reference, name="softmax"), 10),
    "layer_norm": Job(f"{ROWS} × {COLUMNS}", partial(reference, name="layer_norm"), 10),
    "gelu": Job(f"{ROWS} × {COLUMNS}", partial(reference, name="gelu"), 10),
    "cross_entropy": Job(f"{TOKENS} × {VOCABULARY}", partial(reference, name="cross_entropy"), 3),
    "adamw": Job(f"{LENGTH:.0e}", adamw, 3),
}


def jobs(library: Any, names: str, *mode: str) -> list[Callable[[], Task]]:
    """Returns what a worker runs."""
    return [partial(task, library, JOBS[name], mode == ("compiled",)) for name in names.split(",")]


def task(library: Any, job: Job, is_compiled: bool) -> Task:
    call = job.make(library, is_compiled)
    return Task(lambda: [call() for _ in range(job.calls)][-1])


def first_calls() -> None:
    """Prints the seconds of a compiled step's first call, with an empty and with a full cache."""
    code = "from benchmarks import compile; compile.first_call()"
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            env = environment() | {"MYTORCH_CACHE": folder}
            seconds = subprocess.run([sys.executable, "-c", code], env=env, check=True, stdout=subprocess.PIPE)
            print(f"capture and compilation of GPT nano, {cache} cache: {seconds.stdout.decode().strip()} s")


def first_call() -> None:
    import mytorch

    gpt(mytorch, False, "nano")()  # loads the kernels
    step = gpt(mytorch, True, "nano")
    start = time.perf_counter()
    step()
    print(f"{time.perf_counter() - start:.2f}")


def table(result: dict, names: list[str]) -> str:
    """Returns a table with a row for each job, ms a call; ratios to the first implementation."""
    rows = []
    for row, name in zip(result["rows"], names, strict=True):
        times = [by["ms"] / JOBS[name].calls for by in row["by"].values()]
        cells = [f"{ms:.3f}" for ms in times] + [f"{ms / times[0]:.2f}" for ms in times[1:]]
        rows.append([row["name"], row["size"], *cells])
    labels = [*result["implementations"]]
    return harness.table(["ms", "size", *labels, *[f"{label} / {labels[0]}" for label in labels[1:]]], rows)


def main(argv: list[str] | None = None) -> None:
    options = harness.parser("compile", __doc__, 5)
    add = options.add_argument
    add("--jobs", nargs="+", default=[*JOBS], choices=JOBS, metavar="NAME", help=", ".join(JOBS))
    add("--variants", nargs="+", default=["torch", "mytorch", "mytorch-compiled"], choices=VARIANTS,
        metavar="NAME", help=f"what to run, the reference first: {', '.join(VARIANTS)}")  # fmt: skip
    add("--first-call", action="store_true", help="time capture and compilation")
    args = options.parse_args(argv)
    if args.first_call:
        first_calls()
        return
    plan = Plan("compile", steps=5, warm_up=3, tolerance=1e-4)
    variants = [VARIANTS[name] for name in args.variants]
    rows = [(name, JOBS[name].size) for name in args.jobs]
    result = harness.measure(plan, variants, [",".join(args.jobs)], rows, args)
    agreed = f"the results differ by {result['largest_difference']:.1e} at most"
    harness.show(f"Compiled programs, float32; {agreed}", result, table(result, args.jobs), args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
