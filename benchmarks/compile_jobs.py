"""What `benchmarks.compile` times, in PyTorch's words: training steps, functions, references of kernels."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from benchmarks import kernel_jobs
from benchmarks.gpt import BETAS, CONFIGS, chain

LENGTH = 10**7
ROWS = (4096, 768)
KERNELS = [
    kernel_jobs.Job("softmax", (ROWS,), options=(-1,)),
    kernel_jobs.Job("layer_norm", (ROWS, ROWS[1:], ROWS[1:]),
                    call=lambda F, _, x, *p: F.layer_norm(x, ROWS[1:], *p)),
    kernel_jobs.Job("gelu", (ROWS,)),
    kernel_jobs.Job("cross_entropy", ((512, 50304),), constants=(kernel_jobs.tokens(512, 50304),)),
]
Call = Callable[[], Any]  # returns a tensor, whose first number is compared


class Job(NamedTuple):
    """What is timed: `make(library, mode)` returns it, for eager with the mode "". A step of the
    harness are several calls."""

    size: str
    calls: int
    make: Callable[[Any, str], Call]


def normal(library: Any, *shape: int, seed: int = 5) -> Any:
    array = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return library.from_numpy(array).to(library.get_default_device())


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
    device = library.get_default_device()
    model = import_module(f"benchmarks.gpt_{library.__name__}").Trainer(CONFIGS[config], device.type).model
    adamw = library.optim.AdamW(model.parameters(), lr=6e-4, betas=BETAS, weight_decay=0.1)

    def loss_of(x: Any, y: Any) -> Any:
        if library.__name__ == "torch":
            return model(x, y)
        logits = model(x)
        return library.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    batch = [library.from_numpy(a[0]).to(device) for a in chain(CONFIGS[config], 1)]
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
}
